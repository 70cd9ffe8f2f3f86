//! Seats of requests, and the in-flight limits that apply if API Priority and Fairness is off.

use std::sync::Arc;

use api::Status;
use authn::User;
use requests::request_info::RequestInfo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::flow_control::{FairSeat, MatchedUids};

/// Separate seats for reading and for mutating requests. A limit of 0 means no limit, as in kube-apiserver.
#[derive(Debug)]
pub struct Seats {
    reading: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
    limits: (usize, usize),
}

/// The seat of one request, owned by its [`Call`](crate::call::Call) and released on drop.
///
/// A request releases its seat while it waits for its client ([`Seat::release`]) and takes one again before
/// it continues ([`Seat::reacquire`]), so that slow clients do not occupy seats.
#[derive(Debug, Default)]
pub struct Seat(SeatKind);

#[derive(Debug, Default)]
enum SeatKind {
    /// The request needs no seat.
    #[default]
    None,
    /// Limited by `--max-requests-inflight` or its mutating counterpart.
    InFlight(InFlightSeat),
    /// Managed by API Priority and Fairness.
    Fair(FairSeat),
}

/// A seat under the in-flight limits.
#[derive(Debug)]
struct InFlightSeat {
    /// The semaphore that a released seat is taken from again.
    pool: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    /// Members of `system:masters` continue without a seat if none is free.
    is_master: bool,
}

impl From<FairSeat> for Seat {
    fn from(seat: FairSeat) -> Self {
        Seat(SeatKind::Fair(seat))
    }
}

impl Seat {
    /// The values of the response's headers with the FlowSchema and PriorityLevelConfiguration of the request; `None` under the in-flight
    /// limits.
    pub(crate) fn uids(&self) -> Option<MatchedUids> {
        match &self.0 {
            SeatKind::Fair(seat) => seat.uids(),
            _ => None,
        }
    }

    /// Releases the seat temporarily; idempotent.
    pub fn release(&mut self) {
        match &mut self.0 {
            SeatKind::None => {}
            SeatKind::InFlight(seat) => seat.permit = None,
            SeatKind::Fair(seat) => seat.release(),
        }
    }

    /// Gives the seat back for good. Returns the time if the clock was read for it, which saves the caller from reading it again.
    pub(crate) fn end(&mut self) -> Option<std::time::Instant> {
        match &mut self.0 {
            SeatKind::Fair(seat) => seat.end(),
            SeatKind::None | SeatKind::InFlight(_) => None,
        }
    }

    /// Takes a seat again after [`Seat::release`]; waits for one, with precedence over new requests. The
    /// caller limits the wait. Does nothing if the seat was not released.
    pub async fn reacquire(&mut self) -> Result<(), Status> {
        let seat = match &mut self.0 {
            SeatKind::InFlight(seat) if seat.permit.is_none() => seat,
            SeatKind::None | SeatKind::InFlight(_) => return Ok(()),
            SeatKind::Fair(seat) => return seat.reacquire().await.map_err(too_many_requests),
        };
        if seat.is_master {
            seat.permit = Arc::clone(&seat.pool).try_acquire_owned().ok();
            return Ok(());
        }
        let permit = Arc::clone(&seat.pool).acquire_owned().await;
        seat.permit =
            Some(permit.map_err(|_| {
                Status::internal("the request was stopped because the server is shutting down")
            })?);
        Ok(())
    }
}

impl Seats {
    /// The limits of `--max-requests-inflight` and `--max-mutating-requests-inflight`.
    pub fn new(reading: usize, mutating: usize) -> Self {
        let seats = |n: usize| (n > 0).then(|| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS))));
        Seats { reading: seats(reading), mutating: seats(mutating), limits: (reading, mutating) }
    }

    /// Takes a seat for the request, or fails with 429. Long-running requests need none, and members of
    /// `system:masters` proceed without one if none is free.
    pub fn take(&self, user: &User, info: &RequestInfo) -> Result<Seat, Status> {
        let pool = if info.is_read_only() { &self.reading } else { &self.mutating };
        let Some(pool) = pool.as_ref().filter(|_| !info.is_long_running()) else {
            return Ok(Seat::default());
        };
        let is_master = user.is_in(authn::names::MASTERS);
        match Arc::clone(pool).try_acquire_owned() {
            Ok(permit) => {
                let (pool, permit) = (Arc::clone(pool), Some(permit));
                Ok(Seat(SeatKind::InFlight(InFlightSeat { pool, permit, is_master })))
            }
            Err(_) if is_master => Ok(Seat::default()),
            Err(_) => Err(too_many_requests(1)),
        }
    }

    /// Number of occupied seats: `(reading, mutating)`.
    pub fn in_use(&self) -> (usize, usize) {
        let in_use = |pool: &Option<Arc<Semaphore>>, limit: usize| {
            pool.as_ref().map_or(0, |p| limit.saturating_sub(p.available_permits()))
        };
        (in_use(&self.reading, self.limits.0), in_use(&self.mutating, self.limits.1))
    }
}

fn too_many_requests(retry_after: u64) -> Status {
    let seconds = u32::try_from(retry_after).unwrap_or(u32::MAX);
    Status::too_many_requests("Too many requests, please try again later.", seconds)
}

#[cfg(test)]
mod tests;
