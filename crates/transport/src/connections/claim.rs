//! Requests in flight, and those of them that protect their connection from being closed for new clients.
//!
//! A request exists before it is authenticated, and a client that never reads the response can keep it in flight for
//! [`PATIENCE`](crate::drain::PATIENCE). So a request protects its connection only for [`UNCLAIMED`], and then only if its handler has
//! claimed the connection: for an authenticated user, or for a long-running request that is authorized.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{ConnectionState, STAY_OPEN, UNCLAIMED};

/// Values of the state of a request.
const UNDECIDED: u8 = 0;
const CLAIMED: u8 = 1;
const ENDED: u8 = 2;

/// Guard of a request in flight.
#[derive(Debug)]
pub struct RequestInFlight {
    connection: Arc<ConnectionState>,
    state: Arc<AtomicU8>,
}

/// Lets the handler of a request claim the connection on which it arrived.
#[derive(Clone, Debug)]
pub struct ConnectionClaim {
    connection: Arc<ConnectionState>,
    state: Arc<AtomicU8>,
}

impl ConnectionState {
    /// Counts a request as in flight until the result is dropped.
    pub fn begin(self: &Arc<Self>) -> RequestInFlight {
        if self.busy.fetch_add(1, Ordering::Relaxed) == 0 {
            self.unclaimed_since.store(self.millis(), Ordering::Relaxed);
        }
        self.was_used.store(true, Ordering::Relaxed);
        RequestInFlight { connection: Arc::clone(self), state: Arc::default() }
    }

    /// Reports whether a request in flight has claimed it, or it was upgraded.
    pub(super) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Relaxed) > 0 || self.is_upgraded.load(Ordering::Relaxed)
    }

    /// Reports whether it may be closed for new clients. `now` is in milliseconds since the server started.
    pub(super) fn is_closable(&self, now: u64) -> bool {
        let unclaimed = now.saturating_sub(self.unclaimed_since.load(Ordering::Relaxed));
        self.is_idle() || !self.is_claimed() && unclaimed >= UNCLAIMED
    }

    /// Reports whether a connection that is closing gracefully may end: requests without a claim are waited for only if the connection
    /// is not needed for new clients.
    pub fn may_end(&self) -> bool {
        self.is_idle() || self.close.load(Ordering::Acquire) > STAY_OPEN && self.is_closable(self.millis())
    }

    /// Milliseconds since the server started.
    pub(super) fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ConnectionClaim {
    /// Identifies the connection. Not used again for another one.
    pub fn connection(&self) -> u64 {
        self.connection.id()
    }

    /// Protects the connection until the request ends. Idempotent.
    pub fn claim(&self) {
        // Counted first, so that the end of the request never takes away more than was added.
        self.connection.claimed.fetch_add(1, Ordering::Relaxed);
        let claimed = self.state.compare_exchange(UNDECIDED, CLAIMED, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_err() {
            self.connection.claimed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl RequestInFlight {
    pub fn claim(&self) -> ConnectionClaim {
        ConnectionClaim { connection: Arc::clone(&self.connection), state: Arc::clone(&self.state) }
    }

    /// Marks the connection as upgraded to another protocol: it counts as busy until it is closed.
    pub fn upgraded(self) {
        self.connection.is_upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let connection = &self.connection;
        let now = connection.millis();
        connection.last_busy.store(now, Ordering::Relaxed);
        if self.state.swap(ENDED, Ordering::AcqRel) == CLAIMED {
            // Other requests that have just arrived get their time too.
            connection.unclaimed_since.store(now, Ordering::Relaxed);
            connection.claimed.fetch_sub(1, Ordering::Relaxed);
        }
        connection.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectionLimits, ConnectionMetrics, Connections, UNCLAIMED};

    #[tokio::test]
    async fn a_request_protects_its_connection_after_a_time_only_if_it_has_claimed_it() {
        let metrics = ConnectionMetrics::new(&runtime::MetricRegistry::new()).unwrap();
        let connections = Connections::new(ConnectionLimits::default(), metrics);
        let permit = connections.room(&|_| Vec::new()).await.unwrap();
        let open = connections.open("10.0.0.1".parse().unwrap(), permit).unwrap();
        let connection = open.connection();
        assert!(connection.is_closable(0), "without requests");
        let request = connection.begin();
        let later = connection.millis() + UNCLAIMED;
        assert!(!connection.is_closable(connection.millis()) && connection.is_closable(later));
        let claim = request.claim();
        claim.claim();
        claim.claim();
        assert!(connection.is_claimed() && !connection.is_closable(later));
        let second = connection.begin();
        second.claim().claim();
        drop(request);
        assert!(connection.is_claimed(), "by the second request");
        drop(second);
        claim.claim();
        assert!(!connection.is_claimed(), "a request that has ended claims nothing");
        connection.begin().upgraded();
        assert!(connection.is_claimed() && !connection.is_closable(later + UNCLAIMED));
    }
}
