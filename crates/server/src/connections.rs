//! Which connections are open, and which of them are closed when there are too many.
//!
//! Above [`HIGH`] of the limit, each time a connection is accepted, the connections that have been idle longest are closed, from the
//! address that has the most: somebody who opens connections and does not use them loses them first, and everybody else keeps
//! theirs. A connection is idle if no request is in flight on it and no watch or upgraded stream is open, or if its TLS handshake
//! is not complete.

mod metrics;
mod socket;
mod waiting;

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tracing::warn;

pub use metrics::ConnectionMetrics;
pub(crate) use socket::Socket;

use crate::accept::Limits;

/// Above this share of the limit idle connections are closed, in percent.
const HIGH: usize = 80;
/// Above this share they are closed without waiting for their clients to take leave, in percent.
const URGENT: usize = 95;
/// How many are closed at a time: this part of the limit.
const BATCH: usize = 32;
/// The connections that were accepted last are not idle yet: where all others are busy, they would be the only ones to close, and nobody
/// would get in any more.
const NEWEST: u64 = 8;
/// How long a full server waits before it looks again for connections to close.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// All open connections.
pub(crate) struct Connections {
    limits: Limits,
    began: Instant,
    /// One permit for each connection that may be open.
    free: Arc<Semaphore>,
    /// Handshakes in progress that have not been told to go.
    handshakes: AtomicUsize,
    /// Open connections that have been asked to leave, and those that have been told to go.
    leaving: AtomicUsize,
    going: AtomicUsize,
    table: Mutex<Table>,
    metrics: ConnectionMetrics,
    closing_log: LogLimit,
    stalled_log: LogLimit,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Arc<Connection>>,
    /// How many connections each client has.
    clients: HashMap<ClientAddress, usize>,
}

/// What connections are counted by: an IPv4 address, or the first half of an IPv6 address, since whoever has one address has all
/// that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientAddress(IpAddr);

impl std::fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ClientAddress {
    pub(crate) fn of(address: IpAddr) -> Self {
        ClientAddress(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Later connections have larger ones.
    id: u64,
    client: ClientAddress,
    is_handshaking: AtomicBool,
    /// Requests in flight, until their answers have been handed to the connection.
    busy: AtomicUsize,
    was_used: AtomicBool,
    /// It has become a connection of another protocol, and is in use until it is closed.
    is_upgraded: AtomicBool,
    /// When it was last busy, in milliseconds since the server began.
    last_busy: AtomicU64,
    close: AtomicU8,
    changed: Notify,
    began: Instant,
    /// The pieces of answers that HTTP/2 has yet to send.
    waiting: waiting::Waiting,
}

/// Values of [`Connection::close`].
const STAY: u8 = 0;
const TAKE_LEAVE: u8 = 1;
const GO: u8 = 2;

impl Connection {
    /// A request is in flight until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.was_used.store(true, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether it ever had a request.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 && !self.is_upgraded.load(Ordering::Relaxed)
    }

    /// Returns when the connection is to be closed as soon as nothing is in flight on it.
    pub(crate) async fn asked_to_leave(&self) {
        self.reached(TAKE_LEAVE).await;
    }

    /// Returns when the connection is to be closed at once.
    pub(crate) async fn told_to_go(&self) {
        self.reached(GO).await;
    }

    async fn reached(&self, level: u8) {
        while self.close.load(Ordering::Acquire) < level {
            self.changed.notified().await;
        }
    }

    /// Gives the level before.
    fn ask_to_close(&self, level: u8) -> u8 {
        let before = self.close.fetch_max(level, Ordering::AcqRel);
        self.changed.notify_one();
        before
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

impl Busy {
    /// The connection has become one of another protocol: it is in use until it is closed.
    pub(crate) fn upgraded(self) {
        self.0.is_upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_busy.store(now, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes a connection from the table when its socket is closed.
pub(crate) struct Open {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// The client does not read what is sent to it.
    fn stalled(&self) {
        self.connections.count_stalled(1);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.handshake_ended(&self.connection);
        let mut table = self.connections.lock();
        table.open.remove(&self.connection.id);
        // Under the lock, as they are raised.
        let level = self.connection.close.load(Ordering::Acquire);
        self.connections.leaving.fetch_sub(usize::from(level >= TAKE_LEAVE), Ordering::Relaxed);
        self.connections.going.fetch_sub(usize::from(level >= GO), Ordering::Relaxed);
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

/// Why connections are closed.
#[derive(Clone, Copy, PartialEq)]
enum Closes {
    /// There are too many.
    Idle,
    /// Too many have not completed their TLS handshakes.
    Handshaking,
}

impl Connections {
    pub(crate) fn new(limits: Limits, metrics: ConnectionMetrics) -> Arc<Self> {
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

    /// Room for one more connection. Closes idle ones if there are many, and waits if all are in use.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            let taken = self.limits.connections.saturating_sub(self.free.available_permits());
            // Those that are about to be closed are not replaced by others.
            for (level, closing, share) in [(TAKE_LEAVE, &self.leaving, HIGH), (GO, &self.going, URGENT)] {
                let staying = taken.saturating_sub(closing.load(Ordering::Relaxed));
                if staying.saturating_mul(100) >= self.limits.connections.saturating_mul(share) {
                    self.close_idle(Closes::Idle, level);
                }
            }
            let permit = tokio::time::timeout(LOOK_AGAIN, Arc::clone(&self.free).acquire_owned());
            if let Ok(permit) = permit.await {
                return permit.ok();
            }
        }
    }

    /// Notes a connection that was accepted; `None` if its address has as many as it may have.
    pub(crate) fn open(self: &Arc<Self>, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Open> {
        let client = ClientAddress::of(address);
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
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
        let connection = Arc::new(Connection {
            id,
            client,
            is_handshaking: AtomicBool::new(true),
            busy: AtomicUsize::new(0),
            was_used: AtomicBool::new(false),
            is_upgraded: AtomicBool::new(false),
            last_busy: AtomicU64::new(now),
            close: AtomicU8::new(STAY),
            changed: Notify::new(),
            began: self.began,
            waiting: waiting::Waiting::default(),
        });
        table.open.insert(id, Arc::clone(&connection));
        self.metrics.set_open(table.open.len());
        drop(table);
        if self.handshakes.fetch_add(1, Ordering::Relaxed) >= self.limits.handshakes {
            self.close_idle(Closes::Handshaking, GO);
        }
        Some(Open { connections: Arc::clone(self), connection, _permit: permit })
    }

    /// The TLS handshake of a connection is complete, or is given up.
    pub(crate) fn handshake_ended(&self, connection: &Connection) {
        if connection.is_handshaking.swap(false, Ordering::Relaxed) {
            self.handshakes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The process has no descriptor left for a connection.
    pub(crate) fn out_of_descriptors(&self) {
        if self.going.load(Ordering::Relaxed) == 0 {
            self.close_idle(Closes::Idle, GO);
        }
    }

    /// Closes connections on which pieces of answers have waited for too long, for ever.
    pub(crate) async fn close_stalled(self: Arc<Self>) {
        loop {
            tokio::time::sleep(waiting::EVERY).await;
            let now = self.began.elapsed().as_secs();
            let table = self.lock();
            let stalled = table.open.values().filter(|connection| connection.waiting.is_stalled(now));
            let closed = stalled.filter(|connection| self.close(connection, GO) < GO).count();
            drop(table);
            if closed > 0 {
                self.count_stalled(closed);
            }
        }
    }

    fn count_stalled(&self, count: usize) {
        self.metrics.closed("stalled", count);
        if let Some(unlogged) = self.stalled_log.due() {
            warn!(closing = count, unlogged, "answers were not read: closing their connections");
        }
    }

    /// Asks a connection to close; to be called under the lock of the table. Gives the level before.
    fn close(&self, connection: &Connection, level: u8) -> u8 {
        let before = connection.ask_to_close(level);
        self.leaving.fetch_add(usize::from(before < TAKE_LEAVE), Ordering::Relaxed);
        self.going.fetch_add(usize::from(before < GO && level == GO), Ordering::Relaxed);
        before
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &ConnectionMetrics {
        &self.metrics
    }

    /// Counts an error of `accept`.
    pub(crate) fn accept_failed(&self) {
        self.metrics.accept_failed();
    }

    /// Asks the connections to close that have been idle longest, one after the other from the address that has the most.
    fn close_idle(&self, which: Closes, level: u8) {
        let table = self.lock();
        let newest = NEWEST.min(self.limits.connections as u64 / 16);
        let is_new = |connection: &Connection| connection.id.saturating_add(newest) >= table.next;
        let mut idle: BTreeMap<ClientAddress, Vec<&Arc<Connection>>> = BTreeMap::new();
        for connection in table.open.values() {
            let is_closable = match which {
                Closes::Idle => connection.is_idle() && !is_new(connection),
                Closes::Handshaking => connection.is_handshaking.load(Ordering::Relaxed),
            };
            if is_closable && connection.close.load(Ordering::Relaxed) < level {
                idle.entry(connection.client).or_default().push(connection);
            }
        }
        let mut most: BinaryHeap<(usize, ClientAddress)> = BinaryHeap::new();
        for (client, connections) in &mut idle {
            // The oldest last, to be popped first.
            connections.sort_by_key(|c| std::cmp::Reverse((c.last_busy.load(Ordering::Relaxed), c.id)));
            let count = match which {
                Closes::Idle => table.clients.get(client).copied().unwrap_or(0),
                Closes::Handshaking => connections.len(),
            };
            most.push((count, *client));
        }
        let mut closed = 0;
        while closed < (self.limits.connections / BATCH).max(1)
            && let Some((count, client)) = most.pop()
        {
            let Some(connections) = idle.get_mut(&client) else { continue };
            let Some(connection) = connections.pop() else { continue };
            self.close(connection, level);
            if which == Closes::Handshaking {
                self.handshake_ended(connection);
            }
            closed += 1;
            if !connections.is_empty() {
                most.push((count.saturating_sub(1), client));
            }
        }
        let open = table.open.len();
        drop(idle);
        drop(table);
        if closed > 0 {
            let reason = if which == Closes::Idle { "idle" } else { "handshake" };
            self.metrics.closed(reason, closed);
            if let Some(unlogged) = self.closing_log.due() {
                warn!(
                    open,
                    limit = self.limits.connections,
                    closing = closed,
                    reason,
                    unlogged,
                    "many connections: closing the oldest idle ones of the address that has the most"
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets one log line through every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<(Option<Instant>, u64)>);

impl LogLimit {
    const EVERY: Duration = Duration::from_secs(10);

    pub(crate) const fn new() -> Self {
        LogLimit(Mutex::new((None, 0)))
    }

    /// Whether to log now: how many times it was not since the last line.
    pub(crate) fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unlogged) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < Self::EVERY) {
            *unlogged += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(unlogged))
    }
}

#[cfg(test)]
mod tests;
