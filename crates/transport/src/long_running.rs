//! Counts the long-running requests of each account, and ends the oldest ones of the account that has most when there are too many.
//!
//! Each request takes memory, and its connection is busy as long as it runs. A request with large parameters counts as several *units*, and so
//! does one that is proxied, because it may hold a connection to another server, for which there are fewer file descriptors. No account has a limit of its own, because the thousands of clients of a DaemonSet share a service account. Only requests that are
//! authorized count. A watch that is ended is complete, as at its timeout, so clients start again.
//!
//! A request that was asked to end counts until it is dropped. One that waits for its client is dropped after [`END_WITHIN`] on HTTP/2
//! ([`crate::drain::stream_ends_with`]). While the existing requests have as many units as the limit, the account that has most of them is
//! refused further ones.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use api::Status;
use prometheus::IntCounterVec;
use runtime::{LogLimit, MetricRegistry};
use tokio::sync::oneshot;
use tracing::warn;
use value::Str;

use crate::accept::ConnectionLimits;
use crate::byte_budget::{BudgetAccount, SparedRequests};

/// Requests for each connection that may be open, on average. A kubelet has some tens of watches.
const PER_CONNECTION: usize = 32;
/// Memory of an idle watch on HTTP/2 in bytes, rounded up.
const WATCH_BYTES: u64 = 16 * 1024;
/// Bytes of parameters for which a request counts as one more; an idle watch holds fewer.
const UNIT: usize = 16 * 1024;
/// Long-running requests may take one part in this many of the memory.
const MEMORY_SHARE: u64 = 8;
/// The limit is never lower, however small the memory is.
const MIN_LIMIT: usize = 1000;
/// How long a request that was asked to end may take, before its HTTP/2 stream is reset.
pub const END_WITHIN: Duration = Duration::from_secs(5);
/// Percentage of the limit above which requests are ended.
const URGENT: usize = 95;

/// The limit on long-running requests for a limit on connections and a size of memory in bytes.
fn limit(connections: usize, memory: Option<u64>) -> usize {
    let by_memory = memory.map_or(u64::MAX, |memory| memory / MEMORY_SHARE / WATCH_BYTES);
    let by_memory = usize::try_from(by_memory).unwrap_or(usize::MAX);
    connections.saturating_mul(PER_CONNECTION).min(by_memory).max(MIN_LIMIT)
}

#[derive(Debug)]
pub struct LongRunningRequests {
    limit: usize,
    /// Units of a request that is proxied.
    proxied_units: usize,
    running: Mutex<RunningTable>,
    ended: IntCounterVec,
    log: LogLimit,
}

#[derive(Debug, Default)]
struct RunningTable {
    next: u64,
    /// Units of all existing requests.
    total: usize,
    /// Units of the requests that were not asked to end.
    continuing: usize,
    /// Accounts without long-running requests have no entry.
    accounts: HashMap<Str, AccountRequests>,
}

/// The long-running requests of one account.
#[derive(Debug)]
struct AccountRequests {
    /// Up to these numbers, requests of other accounts are ended first.
    spared: SparedRequests,
    /// Requests that were not asked to end, from oldest to newest.
    requests: BTreeMap<u64, EndableRequest>,
    /// The units of all `requests`.
    continuing: usize,
    /// The number of `requests` on each connection.
    connections: HashMap<u64, usize>,
    /// Units of the requests that were asked to end and still exist.
    ending: usize,
    /// The number of requests that were asked to end and still exist.
    ending_requests: usize,
}

#[derive(Debug)]
struct EndableRequest {
    connection: u64,
    is_watch: bool,
    /// One, or more if it is proxied, and one more for each [`UNIT`] of its parameters.
    units: usize,
    end: oneshot::Sender<()>,
    end_stream: oneshot::Sender<()>,
}

impl AccountRequests {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.ending_requests == 0
    }

    /// The units of all existing requests, and the number up to which they are spared.
    fn existing(&self) -> (usize, usize) {
        (self.continuing + self.ending, self.spared.requests)
    }

    /// The units of requests that were not asked to end, and the number up to which they are spared.
    fn continuing(&self) -> (usize, usize) {
        (self.continuing, self.spared.requests)
    }

    /// The number of connections, and the number up to which they are spared.
    fn connections(&self) -> (usize, usize) {
        (self.connections.len(), self.spared.connections)
    }

    /// The request to end first: the oldest watch, or the oldest request if there is no watch.
    fn first_to_end(&self) -> Option<(u64, u64)> {
        let watch = self.requests.iter().find(|(_, request)| request.is_watch);
        watch.or_else(|| self.requests.iter().next()).map(|(id, request)| (*id, request.connection))
    }
}

impl RunningTable {
    /// Takes a request out of those that can be asked to end. `None` if it was asked before.
    fn take(&mut self, account: &Str, id: u64) -> Option<EndableRequest> {
        let of_account = self.accounts.get_mut(account)?;
        let request = of_account.requests.remove(&id)?;
        self.continuing = self.continuing.saturating_sub(request.units);
        of_account.continuing = of_account.continuing.saturating_sub(request.units);
        if let Some(count) = of_account.connections.get_mut(&request.connection) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                of_account.connections.remove(&request.connection);
            }
        }
        Some(request)
    }

    /// Stops counting a request that has ended.
    fn remove(&mut self, account: &Str, id: u64, units: usize) {
        let was_ending = self.take(account, id).is_none();
        self.total = self.total.saturating_sub(units);
        let Some(of_account) = self.accounts.get_mut(account) else { return };
        if was_ending {
            of_account.ending = of_account.ending.saturating_sub(units);
            of_account.ending_requests = of_account.ending_requests.saturating_sub(1);
        }
        if of_account.is_empty() {
            self.accounts.remove(account);
        }
    }

    /// Asks a request to end. Returns the number of requests asked: 0 if it was asked before.
    fn end(&mut self, account: &Str, id: u64) -> usize {
        let Some(request) = self.take(account, id) else { return 0 };
        if let Some(of_account) = self.accounts.get_mut(account) {
            of_account.ending += request.units;
            of_account.ending_requests += 1;
        }
        // Errors mean that it has just ended itself, or is not sent on a stream.
        let _ = request.end.send(());
        let _ = request.end_stream.send(());
        1
    }

    /// The account with the largest size above zero; one that is spared only if all others are, too. `sizes` returns the size of an account,
    /// and the size up to which it is spared.
    fn largest(&self, sizes: impl Fn(&AccountRequests) -> (usize, usize)) -> Option<Str> {
        let sizes = self.accounts.iter().map(|(account, requests)| (account, sizes(requests)));
        let some = sizes.filter(|(_, (size, _))| *size > 0);
        let largest = some.max_by_key(|(_, (size, spared))| (size > spared, *size));
        largest.map(|(account, _)| account.clone())
    }
}

impl LongRunningRequests {
    /// The limits on connections and on proxied requests are those of `limits`. The memory limit is read from the system.
    pub fn new(registry: &MetricRegistry, limits: &ConnectionLimits) -> prometheus::Result<Arc<Self>> {
        let limit = limit(limits.connections, runtime::memory::available_bytes());
        LongRunningRequests::with_limits(registry, limit, limits.proxied)
    }

    fn with_limits(registry: &MetricRegistry, limit: usize, proxied: usize) -> prometheus::Result<Arc<Self>> {
        let ended = registry.counter_vec(
            "apiserver_long_running_requests_ended_total",
            "Number of long-running requests that were ended because there were too many, by reason: connections (nearly all connections were busy), limit.",
            &["reason"],
        )?;
        let most = registry.gauge(
            "apiserver_long_running_requests_limit",
            "Number of watches and other long-running requests that may run.",
        )?;
        most.set(i64::try_from(limit).unwrap_or(i64::MAX));
        Ok(Arc::new(LongRunningRequests {
            limit,
            proxied_units: limit.div_ceil(proxied.max(1)),
            running: Mutex::default(),
            ended,
            log: LogLimit::default(),
        }))
    }

    /// Counts a request that holds this many `bytes` for its parameters, until the result is dropped. Ends others if there are too many now.
    /// Fails with 429 if the account has most of all requests, and too many of them were asked to end and still exist.
    pub fn begin(
        self: &Arc<Self>,
        account: &BudgetAccount,
        connection: u64,
        kind: LongRunningKind,
        bytes: usize,
    ) -> Result<LongRunningRequest, Status> {
        let LongRunningKind { is_watch, is_proxied } = kind;
        let units = bytes / UNIT + if is_proxied { self.proxied_units } else { 1 };
        let (end, ended) = oneshot::channel();
        let (end_stream, stream_ended) = oneshot::channel();
        let owner = account.owner();
        let mut running = self.lock();
        if running.total >= self.limit
            && running.largest(AccountRequests::existing).is_some_and(|largest| largest == *owner)
        {
            let why = "too many long-running requests of this user, please try again later";
            return Err(Status::too_many_requests(why, 1));
        }
        let id = running.next;
        running.next += 1;
        running.total += units;
        running.continuing += units;
        let of_account = running.accounts.entry(owner.clone()).or_insert_with(|| AccountRequests {
            spared: account.spared_requests(),
            requests: BTreeMap::new(),
            continuing: 0,
            connections: HashMap::new(),
            ending: 0,
            ending_requests: 0,
        });
        of_account.requests.insert(id, EndableRequest { connection, is_watch, units, end, end_stream });
        of_account.continuing += units;
        *of_account.connections.entry(connection).or_default() += 1;
        let most = self.limit.saturating_mul(URGENT) / 100;
        let mut last = None;
        let mut count = 0;
        while running.continuing > most
            && let Some(account) = running.largest(AccountRequests::continuing)
            && let Some((id, _)) = running.accounts.get(&account).and_then(AccountRequests::first_to_end)
        {
            count += running.end(&account, id);
            last = Some(account);
        }
        drop(running);
        if let Some(account) = last {
            self.report("limit", &account, count);
        }
        let (account, stream_ended) = (owner.clone(), Some(stream_ended));
        Ok(LongRunningRequest { requests: Arc::clone(self), account, id, units, ended, stream_ended })
    }

    /// Ends the requests of this number of connections, each time those of the account that is on most connections. Returns the
    /// connections.
    pub fn end_on_connections(&self, wanted: usize) -> Vec<u64> {
        let mut running = self.lock();
        let mut connections = Vec::new();
        let mut last = None;
        let mut count = 0;
        while connections.len() < wanted
            && let Some(account) = running.largest(AccountRequests::connections)
            && let Some(requests) = running.accounts.get(&account)
            && let Some((_, connection)) = requests.first_to_end()
        {
            let on_it = requests.requests.iter().filter(|(_, request)| request.connection == connection);
            let ids: Vec<u64> = on_it.map(|(id, _)| *id).collect();
            count += ids.into_iter().map(|id| running.end(&account, id)).sum::<usize>();
            connections.push(connection);
            last = Some(account);
        }
        drop(running);
        if let Some(account) = last {
            self.report("connections", &account, count);
        }
        connections
    }

    fn report(&self, reason: &str, account: &Str, count: usize) {
        self.ended.with_label_values(&[reason]).inc_by(count as u64);
        if let Some(unlogged) = self.log.due() {
            let account = account.as_str();
            warn!(
                reason,
                ?account,
                ended = count,
                limit = self.limit,
                unlogged,
                "too many long-running requests: ending the oldest watches of the account that has the most"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunningTable> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Properties of a long-running request that decide how much it counts, and whether it is one of the first to end.
#[derive(Clone, Copy, Debug)]
pub struct LongRunningKind {
    pub is_watch: bool,
    /// An aggregated API server answers it.
    pub is_proxied: bool,
}

/// Guard of a long-running request.
#[derive(Debug)]
pub struct LongRunningRequest {
    requests: Arc<LongRunningRequests>,
    account: Str,
    id: u64,
    units: usize,
    ended: oneshot::Receiver<()>,
    stream_ended: Option<oneshot::Receiver<()>>,
}

/// Ready when a request was asked to end; never if it ends itself.
#[derive(Debug)]
pub struct EndSignal(oneshot::Receiver<()>);

impl EndSignal {
    /// Must not be polled again once it is ready.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(()) => Poll::Ready(()),
            // Nothing wakes the task any more.
            Err(_) => Poll::Pending,
        }
    }
}

impl LongRunningRequest {
    /// A second signal of the end, for the stream that carries the response: it may wait for its client and not poll the response. `None`
    /// if it was taken before.
    pub fn take_end_signal(&mut self) -> Option<EndSignal> {
        self.stream_ended.take().map(EndSignal)
    }

    /// Ready when the request must end. Must not be polled again then.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.ended).poll(context).map(drop)
    }

    /// Returns when the request must end; never for a request that is not counted.
    pub async fn must_end(running: &mut Option<Self>) {
        match running {
            Some(running) => drop((&mut running.ended).await),
            None => std::future::pending().await,
        }
    }
}

impl Drop for LongRunningRequest {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.account, self.id, self.units);
    }
}

#[cfg(test)]
mod tests;
