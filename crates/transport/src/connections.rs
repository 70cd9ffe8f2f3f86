//! Tracks the open connections and closes idle ones when there are too many.
//!
//! Above [`HIGH`] percent of the limit, each accept closes the connections that have been idle longest, from
//! the client address with the most connections. So a client that opens connections without using them loses
//! its own first. A connection is idle if no request, watch or upgraded stream is in flight on it, or if its
//! TLS handshake is not complete. It also counts as idle if its requests have no [`ConnectionClaim`] after
//! [`UNCLAIMED`]. If [`URGENT`] percent are claimed, long-running requests are ended.

mod claim;
mod metrics;
mod relief;
mod socket;
mod waiting;

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::LogLimit;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tracing::warn;

pub use claim::{ConnectionClaim, RequestInFlight};
pub use metrics::ConnectionMetrics;
pub use socket::TrackedSocket;

use crate::accept::ConnectionLimits;

/// Percentage of the connection limit above which idle connections are closed gracefully.
const HIGH: usize = 80;
/// Percentage of the limit above which idle connections are closed without a graceful shutdown.
const URGENT: usize = 95;
/// One round closes up to `limit / BATCH` connections.
const BATCH: usize = 32;
/// The most recently accepted connections are never closed as idle: if all others are busy, only new
/// connections would be closed and no client could connect any more.
const NEWEST: u64 = 8;
/// The time that a connection has for its first request, in milliseconds. Until then, other idle connections of its address are closed
/// before it, and it is closed only to spare those of other addresses. Otherwise clients that connect at a high rate, and are closed as
/// idle, would leave no time for the handshakes of others.
const FIRST_REQUEST: u64 = 1_000;
/// The time that requests without a claim protect their connection, in milliseconds. Requests are authenticated within less.
const UNCLAIMED: u64 = 2_000;
/// How long a full server waits before it searches for idle connections again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub struct Connections {
    limits: ConnectionLimits,
    began: Instant,
    /// One permit per connection that may be open.
    free: Arc<Semaphore>,
    /// Handshakes in progress, without those whose connection is closing immediately.
    handshakes: AtomicUsize,
    /// Open connections at level [`CLOSE_GRACEFULLY`] or above, and those at [`CLOSE_NOW`].
    leaving: AtomicUsize,
    going: AtomicUsize,
    table: Mutex<ConnectionTable>,
    metrics: ConnectionMetrics,
    closing_log: LogLimit,
    stalled_log: LogLimit,
}

#[derive(Default)]
struct ConnectionTable {
    next: u64,
    open: BTreeMap<u64, Arc<ConnectionState>>,
    /// Open connections per client.
    clients: HashMap<ClientAddress, usize>,
}

/// The key by which connections are counted: an IPv4 address or an IPv6 /64 prefix, because a client usually
/// controls its whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientAddress(IpAddr);

impl std::fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ClientAddress {
    pub fn of(address: IpAddr) -> Self {
        ClientAddress(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// State of one open connection, shared by its socket and its requests.
#[derive(Debug)]
pub struct ConnectionState {
    /// Increases with each accepted connection.
    id: u64,
    client: ClientAddress,
    is_handshaking: AtomicBool,
    /// Requests in flight, until their response bodies have been handed to the connection.
    busy: AtomicUsize,
    /// Requests in flight whose handler has claimed the connection.
    claimed: AtomicUsize,
    /// Since when it has had requests but no claim, in milliseconds since the server started; undefined at other times.
    unclaimed_since: AtomicU64,
    was_used: AtomicBool,
    /// Set after a protocol upgrade: the connection then counts as busy until it is closed.
    is_upgraded: AtomicBool,
    /// End of the last request, in milliseconds since the server started.
    last_busy: AtomicU64,
    /// When the long-running requests of the connection were ended to free it, in milliseconds since the server started; 0 if they were not.
    ended_at: AtomicU64,
    close: AtomicU8,
    changed: Notify,
    began: Instant,
    /// Parts of response bodies that HTTP/2 has buffered but not sent.
    waiting: waiting::BufferedParts,
}

/// Values of [`ConnectionState::close`] in increasing order: stay open, close gracefully, close immediately.
const STAY_OPEN: u8 = 0;
const CLOSE_GRACEFULLY: u8 = 1;
const CLOSE_NOW: u8 = 2;

impl ConnectionState {
    pub fn id(&self) -> u64 {
        self.id
    }

    /// True once a request has arrived on it.
    pub fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    pub fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 && !self.is_upgraded.load(Ordering::Relaxed)
    }

    /// Returns when the connection is to be closed gracefully.
    pub async fn must_close_gracefully(&self) {
        self.reached(CLOSE_GRACEFULLY).await;
    }

    /// Returns when the connection is to be closed immediately, whatever is in flight.
    pub async fn must_close_now(&self) {
        self.reached(CLOSE_NOW).await;
    }

    async fn reached(&self, level: u8) {
        while self.close.load(Ordering::Acquire) < level {
            self.changed.notified().await;
        }
    }

    /// Raises the close level; returns the previous one.
    fn ask_to_close(&self, level: u8) -> u8 {
        let before = self.close.fetch_max(level, Ordering::AcqRel);
        self.changed.notify_one();
        before
    }
}

/// Guard owned by the socket that removes its connection from the table on drop.
pub struct OpenConnection {
    connections: Arc<Connections>,
    connection: Arc<ConnectionState>,
    _permit: OwnedSemaphorePermit,
}

impl OpenConnection {
    pub fn connection(&self) -> Arc<ConnectionState> {
        Arc::clone(&self.connection)
    }

    /// Counts a connection that is closed because its client does not read.
    fn stalled(&self) {
        self.connections.count_stalled(1);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.handshake_ended(&self.connection);
        let mut table = self.connections.lock();
        table.open.remove(&self.connection.id);
        // Read under the lock because levels are raised only under the lock.
        let level = self.connection.close.load(Ordering::Acquire);
        self.connections.leaving.fetch_sub(usize::from(level >= CLOSE_GRACEFULLY), Ordering::Relaxed);
        self.connections.going.fetch_sub(usize::from(level >= CLOSE_NOW), Ordering::Relaxed);
        let client = self.connection.client;
        let left = table.clients.get_mut(&client).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            table.clients.remove(&client);
        }
        self.connections.metrics.set_open(table.open.len());
    }
}

/// Selects the connections to close.
#[derive(Clone, Copy, PartialEq)]
enum IdleKind {
    /// Idle ones, because the connection limit is nearly reached.
    Idle,
    /// Unfinished TLS handshakes, because there are too many of them.
    Handshaking,
}

impl Connections {
    pub fn new(limits: ConnectionLimits, metrics: ConnectionMetrics) -> Arc<Self> {
        metrics.set_limit(limits.connections);
        Arc::new(Connections {
            limits,
            began: Instant::now(),
            free: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            handshakes: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            going: AtomicUsize::new(0),
            table: Mutex::default(),
            metrics,
            closing_log: LogLimit::default(),
            stalled_log: LogLimit::default(),
        })
    }

    /// Waits for a permit to accept one more connection. Closes idle connections if many are open. If nearly all are busy, `end` must end
    /// the long-running requests of a number of connections and return the ids of these. `None` only if the semaphore is closed.
    pub async fn room(&self, end: &impl Fn(usize) -> Vec<u64>) -> Option<OwnedSemaphorePermit> {
        loop {
            let taken = self.limits.connections.saturating_sub(self.free.available_permits());
            // Connections that are already closing do not count towards the threshold.
            for (level, closing, share) in
                [(CLOSE_GRACEFULLY, &self.leaving, HIGH), (CLOSE_NOW, &self.going, URGENT)]
            {
                let staying = taken.saturating_sub(closing.load(Ordering::Relaxed));
                if staying.saturating_mul(100) >= self.limits.connections.saturating_mul(share) {
                    self.close_idle(IdleKind::Idle, level, self.millis());
                    if level == CLOSE_NOW {
                        self.end_long_running(end);
                    }
                }
            }
            let permit = tokio::time::timeout(LOOK_AGAIN, Arc::clone(&self.free).acquire_owned());
            if let Ok(permit) = permit.await {
                return permit.ok();
            }
            self.close_ended(self.millis());
        }
    }

    /// Milliseconds since the server started.
    fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Registers an accepted connection; `None` if its address has reached its limit.
    pub fn open(self: &Arc<Self>, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<OpenConnection> {
        let client = ClientAddress::of(address);
        let now = self.millis();
        let mut table = self.lock();
        let count = table.clients.entry(client).or_default();
        if self.limits.connections_per_address > 0 && *count >= self.limits.connections_per_address {
            drop(table);
            self.metrics.closed("per_address", 1);
            return None;
        }
        *count += 1;
        let id = table.next;
        table.next += 1;
        let connection = Arc::new(ConnectionState {
            id,
            client,
            is_handshaking: AtomicBool::new(true),
            busy: AtomicUsize::new(0),
            claimed: AtomicUsize::new(0),
            unclaimed_since: AtomicU64::new(now),
            was_used: AtomicBool::new(false),
            is_upgraded: AtomicBool::new(false),
            last_busy: AtomicU64::new(now),
            ended_at: AtomicU64::new(0),
            close: AtomicU8::new(STAY_OPEN),
            changed: Notify::new(),
            began: self.began,
            waiting: waiting::BufferedParts::default(),
        });
        table.open.insert(id, Arc::clone(&connection));
        self.metrics.set_open(table.open.len());
        drop(table);
        if self.handshakes.fetch_add(1, Ordering::Relaxed) >= self.limits.handshakes {
            self.close_idle(IdleKind::Handshaking, CLOSE_NOW, now);
        }
        Some(OpenConnection { connections: Arc::clone(self), connection, _permit: permit })
    }

    /// Ends the count of a handshake that completed or was given up; idempotent.
    pub fn handshake_ended(&self, connection: &ConnectionState) {
        if connection.is_handshaking.swap(false, Ordering::Relaxed) {
            self.handshakes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes idle connections because accepting failed for lack of a file descriptor.
    pub fn out_of_descriptors(&self) {
        if self.going.load(Ordering::Relaxed) == 0 {
            self.close_idle(IdleKind::Idle, CLOSE_NOW, self.millis());
        }
    }

    /// Runs forever: closes connections on which response data has waited too long.
    pub async fn close_stalled(self: Arc<Self>) {
        loop {
            tokio::time::sleep(waiting::EVERY).await;
            let now = self.began.elapsed().as_secs();
            let table = self.lock();
            let stalled = table.open.values().filter(|connection| connection.waiting.is_stalled(now));
            let closed = stalled.filter(|connection| self.close(connection, CLOSE_NOW) < CLOSE_NOW).count();
            drop(table);
            if closed > 0 {
                self.count_stalled(closed);
            }
        }
    }

    fn count_stalled(&self, count: usize) {
        self.metrics.closed("stalled", count);
        if let Some(unlogged) = self.stalled_log.due() {
            warn!(closing = count, unlogged, "closing connections whose clients do not read responses");
        }
    }

    /// Raises the close level of a connection and returns the previous one. The caller must hold the table
    /// lock.
    fn close(&self, connection: &ConnectionState, level: u8) -> u8 {
        let before = connection.ask_to_close(level);
        self.leaving.fetch_add(usize::from(before < CLOSE_GRACEFULLY), Ordering::Relaxed);
        self.going.fetch_add(usize::from(before < CLOSE_NOW && level == CLOSE_NOW), Ordering::Relaxed);
        before
    }

    pub fn metrics(&self) -> &ConnectionMetrics {
        &self.metrics
    }

    pub fn accept_failed(&self) {
        self.metrics.accept_failed();
    }

    /// Closes the longest idle connections, each time from the client with the most connections. `now` is in milliseconds since the
    /// server started.
    fn close_idle(&self, which: IdleKind, level: u8, now: u64) {
        let table = self.lock();
        let newest = NEWEST.min(self.limits.connections as u64 / 16);
        let is_new = |connection: &ConnectionState| {
            let age = now.saturating_sub(connection.last_busy.load(Ordering::Relaxed));
            which == IdleKind::Idle && !connection.was_used() && age < FIRST_REQUEST
        };
        let mut idle: BTreeMap<ClientAddress, Vec<&Arc<ConnectionState>>> = BTreeMap::new();
        // The number of candidates that are not new.
        let mut settled: usize = 0;
        for connection in table.open.values() {
            let is_closable = match which {
                IdleKind::Idle => {
                    connection.is_closable(now) && connection.id.saturating_add(newest) < table.next
                }
                IdleKind::Handshaking => connection.is_handshaking.load(Ordering::Relaxed),
            };
            if is_closable && connection.close.load(Ordering::Relaxed) < level {
                idle.entry(connection.client).or_default().push(connection);
                settled += usize::from(!is_new(connection));
            }
        }
        // Of addresses with as many connections, those that are not new first.
        let mut most: BinaryHeap<(usize, bool, ClientAddress)> = BinaryHeap::new();
        let next_is_settled = |connections: &[&Arc<ConnectionState>]| {
            connections.last().is_some_and(|connection| !is_new(connection))
        };
        for (client, connections) in &mut idle {
            // Sorted descending, so that `pop` returns the longest idle one, and new ones last.
            connections
                .sort_by_key(|c| std::cmp::Reverse((is_new(c), c.last_busy.load(Ordering::Relaxed), c.id)));
            let count = match which {
                IdleKind::Idle => table.clients.get(client).copied().unwrap_or(0),
                IdleKind::Handshaking => connections.len(),
            };
            most.push((count, next_is_settled(connections), *client));
        }
        let mut closed = 0;
        // New connections are closed only in place of others.
        while settled > 0
            && closed < (self.limits.connections / BATCH).max(1)
            && let Some((count, is_settled, client)) = most.pop()
        {
            let Some(connections) = idle.get_mut(&client) else { continue };
            let Some(connection) = connections.pop() else { continue };
            self.close(connection, level);
            if which == IdleKind::Handshaking {
                self.handshake_ended(connection);
            }
            closed += 1;
            settled = settled.saturating_sub(usize::from(is_settled));
            if !connections.is_empty() {
                most.push((count.saturating_sub(1), next_is_settled(connections), client));
            }
        }
        let open = table.open.len();
        drop(idle);
        drop(table);
        if closed > 0 {
            let reason = if which == IdleKind::Idle { "idle" } else { "handshake" };
            self.metrics.closed(reason, closed);
            if let Some(unlogged) = self.closing_log.due() {
                warn!(
                    open,
                    limit = self.limits.connections,
                    closing = closed,
                    reason,
                    unlogged,
                    "the connection limit is near: closing the oldest idle connections of the address that has the most"
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
