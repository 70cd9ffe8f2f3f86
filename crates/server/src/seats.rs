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
mod tests {
    use authn::User;
    use http::Method;

    use super::Seats;
    use requests::request_info::{Query, RequestInfo};

    fn info(method: &Method, url: &str) -> RequestInfo {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        RequestInfo::parse(method, path, &Query::parse(query))
    }

    #[test]
    fn a_request_over_the_limit_is_rejected_with_retry_after() {
        let seats = Seats::new(1, 1);
        let (user, list) = (User::named("u"), info(&Method::GET, "/api/v1/pods"));
        let seat = seats.take(&user, &list).unwrap();
        let refused = seats.take(&user, &list).unwrap_err();
        assert_eq!((refused.code(), refused.details().unwrap().retry_after_seconds), (429, 1));
        assert!(seats.take(&user, &info(&Method::POST, "/api/v1/pods")).is_ok());
        drop(seat);
        assert!(seats.take(&user, &list).is_ok());
    }

    #[test]
    fn watches_and_masters_need_no_seat() {
        let seats = Seats::new(1, 1);
        let user = User::named("u");
        let list = info(&Method::GET, "/api/v1/pods");
        let _seat = seats.take(&user, &list).unwrap();
        assert!(seats.take(&user, &info(&Method::GET, "/api/v1/pods?watch=1")).is_ok());
        assert!(seats.take(&User::named("m").in_groups([authn::names::MASTERS]), &list).is_ok());
    }
    #[tokio::test]
    async fn a_request_reacquiring_its_seat_goes_before_new_requests() {
        let seats = Seats::new(1, 1);
        let (user, post) = (User::named("u"), info(&Method::POST, "/api/v1/pods"));
        let mut slow = seats.take(&user, &post).unwrap();
        slow.reacquire().await.unwrap();
        assert_eq!(seats.in_use(), (0, 1), "a seat that was not released is not taken twice");
        slow.release();
        let other = seats.take(&user, &post).unwrap();
        let mut again = Box::pin(slow.reacquire());
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(again.as_mut().poll(cx))).await;
        assert!(first.is_pending(), "the only seat is taken");
        drop(other);
        assert!(seats.take(&user, &post).is_err(), "the one that waits comes first");
        again.await.unwrap();
        assert_eq!(seats.in_use(), (0, 1));
        drop(slow);
        assert_eq!(seats.in_use(), (0, 0));
    }

    #[tokio::test]
    async fn members_of_system_masters_reacquire_without_waiting_for_a_seat() {
        let seats = Seats::new(1, 1);
        let post = info(&Method::POST, "/api/v1/pods");
        let mut master = seats.take(&User::named("m").in_groups([authn::names::MASTERS]), &post).unwrap();
        master.release();
        let _other = seats.take(&User::named("u"), &post).unwrap();
        master.reacquire().await.unwrap();
    }
}
