//! The in-flight limits: how many requests are worked on at once.

use std::sync::Arc;

use api::Status;
use authn::User;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::request_info::RequestInfo;

/// Seats for requests that read and for those that change something. 0 takes a limit away, as in Kubernetes.
#[derive(Debug)]
pub struct Seats {
    reading: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
    limits: (usize, usize),
}

/// A seat, given back when dropped.
#[derive(Debug)]
pub struct Seat {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Seats {
    /// `--max-requests-inflight` and `--max-mutating-requests-inflight`.
    pub fn new(reading: usize, mutating: usize) -> Self {
        let seats = |n: usize| (n > 0).then(|| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS))));
        Seats { reading: seats(reading), mutating: seats(mutating), limits: (reading, mutating) }
    }

    /// A seat for the request, or 429. Watches and the like need none, nor do the cluster's masters.
    pub fn take(&self, user: &User, info: &RequestInfo) -> Result<Seat, Status> {
        let pool = if info.is_read_only() { &self.reading } else { &self.mutating };
        let Some(pool) = pool.as_ref().filter(|_| !info.is_long_running()) else {
            return Ok(Seat { _permit: None });
        };
        match Arc::clone(pool).try_acquire_owned() {
            Ok(permit) => Ok(Seat { _permit: Some(permit) }),
            Err(_) if user.is_in(authn::names::MASTERS) => Ok(Seat { _permit: None }),
            Err(_) => Err(Status::too_many_requests("Too many requests, please try again later.", 1)),
        }
    }

    /// How many seats are taken: `(reading, mutating)`.
    pub fn taken(&self) -> (usize, usize) {
        let taken = |pool: &Option<Arc<Semaphore>>, limit: usize| {
            pool.as_ref().map_or(0, |p| limit.saturating_sub(p.available_permits()))
        };
        (taken(&self.reading, self.limits.0), taken(&self.mutating, self.limits.1))
    }
}

#[cfg(test)]
mod tests {
    use authn::User;
    use http::Method;

    use super::Seats;
    use crate::request_info::{Query, RequestInfo};

    fn info(method: &Method, url: &str) -> RequestInfo {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        RequestInfo::parse(method, path, &Query::parse(query))
    }

    #[test]
    fn a_request_over_the_limit_is_told_when_to_come_back() {
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
}
