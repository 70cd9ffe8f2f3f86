//! A shared backend in memory, for tests of several servers: a service that several stores use, that decides compare-and-swap itself,
//! and that delivers changes through a stream of its own to each store, like etcd.
//!
//! A test makes a store stale by holding back its stream ([`StoreStream::pause`]), and then decides when it catches up.

mod holds;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::backend::{
    Backend, BackendFuture, CommitFailure, DecidedChange, Feed, KeyPage, OwnWrite, Range, RangePage,
    StoredRecord, Unavailable, WriteDecision,
};
use crate::error::{OpenError, ReadError};
use crate::key;
use crate::record::{Change, Expect, Fence, Write, WritePriority};
use holds::HeldCommit;
pub use holds::{CommitHold, HoldPoint};

/// The shared service. Clones are the same service.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory(Arc<SharedService>);

#[derive(Debug, Default)]
struct SharedService {
    state: Mutex<SharedState>,
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct SharedState {
    log: Vec<DecidedChange>,
    live: BTreeMap<Arc<str>, StoredRecord>,
    /// The last revision used by keys outside the stores.
    skipped: u64,
    compacted: u64,
    /// How the next write to each of these keys fails.
    failures: HashMap<Arc<str>, SharedFailure>,
    /// The point at which the next write to each of these keys stops.
    holds: HashMap<Arc<str>, HeldCommit>,
    /// The service does not answer.
    is_unreachable: bool,
    /// The number of writes that were refused.
    refusals: u64,
}

/// A failure of one commit, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedFailure {
    NotStored,
    /// The write is stored, but its outcome is reported as unknown.
    StoredUnknown,
    /// The write is not stored, and its outcome is reported as unknown, after the longest time that a write may take.
    TimedOut,
}

impl SharedState {
    fn revision(&self) -> u64 {
        self.log.last().map_or(1, |last| last.revision).max(self.skipped)
    }

    fn reachable(&self) -> Result<(), Unavailable> {
        if self.is_unreachable { Err(Unavailable("connection refused".to_owned())) } else { Ok(()) }
    }

    /// The records of a range, without its limit.
    fn range(&self, range: &Range) -> Result<Vec<StoredRecord>, ReadError> {
        self.reachable().map_err(|Unavailable(why)| ReadError::Unavailable(why))?;
        if range.revision < self.compacted {
            return Err(ReadError::Compacted { oldest: self.compacted });
        }
        if range.revision > self.revision() {
            return Err(ReadError::Future { current: self.revision() });
        }
        let mut records: Vec<_> = self.live_at(range.revision).into_values().collect();
        records.retain(|stored| {
            let is_after = range.after.as_deref().is_none_or(|after| *stored.key > *after);
            is_after && key::covers(&range.scope, &stored.key)
        });
        Ok(records)
    }

    fn live_at(&self, revision: u64) -> BTreeMap<Arc<str>, StoredRecord> {
        let mut live = BTreeMap::new();
        for done in self.log.iter().take_while(|done| done.revision <= revision) {
            done.clone().apply_to(&mut live);
        }
        live
    }
}

impl SharedMemory {
    pub fn new() -> SharedMemory {
        SharedMemory::default()
    }

    /// A backend for one store that uses the service.
    pub fn backend(&self) -> SharedMemoryBackend {
        SharedMemoryBackend {
            service: self.clone(),
            stream: StoreStream {
                service: self.clone(),
                delivery: Arc::new(watch::Sender::new(Delivery::All)),
                faults: Arc::default(),
            },
            running: Mutex::default(),
        }
    }

    /// Uses up a revision, like a write to a key outside the stores.
    pub fn skip_revision(&self) -> u64 {
        let mut state = self.lock();
        state.skipped = state.revision() + 1;
        self.0.revision.send_replace(state.skipped);
        state.skipped
    }

    pub fn fail_next_commit(&self, key: &str, failure: SharedFailure) {
        self.lock().failures.insert(key.into(), failure);
    }

    /// Lets the next commit to `key` stop, until the result is dropped.
    pub fn hold_next_commit(&self, key: &str, point: HoldPoint) -> CommitHold {
        let (reached, is_reached) = watch::channel(false);
        let (release, released) = watch::channel(());
        self.lock().holds.insert(key.into(), HeldCommit { point, reached, released });
        CommitHold { reached: is_reached, _release: release }
    }

    /// Lets every later call fail, or no longer. Changes that were stored before are still delivered.
    pub fn set_unreachable(&self, is_unreachable: bool) {
        self.lock().is_unreachable = is_unreachable;
    }

    /// The number of writes that the service has refused so far.
    pub fn refusals(&self) -> u64 {
        self.lock().refusals
    }

    /// Returns to the data of an earlier revision, like etcd that is restored from a snapshot. The next writes get the revisions of the
    /// changes that are lost. Stores notice it when they are loaded again: see [`StoreStream::reload`].
    pub fn restore(&self, revision: u64) {
        let mut state = self.lock();
        state.live = state.live_at(revision);
        state.log.retain(|done| done.revision <= revision);
        state.skipped = state.skipped.min(revision);
    }

    /// Decides a write: returns its revision and the one that it replaced, or why it was refused.
    fn transact(&self, write: Write, fences: &[Fence]) -> Result<(u64, u64), SharedRefusal> {
        let mut state = self.lock();
        let at = state.revision();
        let Write { key, expect, change, ttl, .. } = write;
        let current = state.live.get(&key);
        if !expect.admits(&change, current.map(|current| current.revision)) {
            state.refusals += 1;
            return Err(SharedRefusal::State(at));
        }
        let is_unchanged = |fence: &Fence| {
            state.live.get(&fence.key).is_some_and(|stored| stored.revision == fence.revision)
        };
        if !fences.iter().all(is_unchanged) {
            state.refusals += 1;
            return Err(SharedRefusal::Fenced);
        }
        let revision = at + 1;
        let replaced = current.map_or(0, |current| current.revision);
        let created = current.map_or(revision, |current| current.created);
        let done = DecidedChange { key: Arc::clone(&key), revision, created, change };
        done.clone().apply_to(&mut state.live);
        state.log.push(done);
        drop(state);
        self.0.revision.send_replace(revision);
        if let Some(ttl) = ttl {
            let service = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(ttl).await;
                let (expect, change) = (Expect::Revision(revision), Change::Delete);
                // Refused if the key has been written since.
                let write = Write { key, expect, change, priority: WritePriority::System, ttl: None };
                let _ = service.transact(write, &[]);
            });
        }
        Ok((revision, replaced))
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the service refuses a write.
enum SharedRefusal {
    /// The key was not in the expected state at this revision.
    State(u64),
    Fenced,
}

/// The changes that a stream delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    All,
    /// Changes up to this revision only.
    Until(u64),
    /// Like `Until`, but a reader that asks for the current revision, or a write, raises the limit.
    OnRequest(u64),
}

/// Controls the stream of changes to one store. Clones control the same stream.
#[derive(Clone, Debug)]
pub struct StoreStream {
    service: SharedMemory,
    delivery: Arc<watch::Sender<Delivery>>,
    faults: Arc<watch::Sender<StreamFaults>>,
}

/// The changes that a stream loses, and how often its store was asked to load everything again.
#[derive(Clone, Copy, Debug, Default)]
struct StreamFaults {
    /// The number of changes that are not delivered.
    to_lose: u64,
    reloads: u64,
}

impl StoreStream {
    /// Holds back all later changes until [`StoreStream::resume`].
    pub fn pause(&self) {
        self.delivery.send_replace(Delivery::Until(self.service.lock().revision()));
    }

    /// Holds back later changes until this store asks for the current revision or writes. So a read that does not ask returns old
    /// data, and one that asks need not wait.
    pub fn deliver_on_request(&self) {
        self.delivery.send_replace(Delivery::OnRequest(self.service.lock().revision()));
    }

    /// Delivers the changes that were held back, and all later ones.
    pub fn resume(&self) {
        self.delivery.send_replace(Delivery::All);
    }

    /// Loses the next change: the store never receives it.
    pub fn lose_next_change(&self) {
        self.faults.send_modify(|faults| faults.to_lose += 1);
    }

    /// Takes one of the changes that are to be lost.
    /// Lets the store load everything again.
    pub fn reload(&self) {
        self.faults.send_modify(|faults| faults.reloads += 1);
    }

    fn loses(&self) -> bool {
        self.faults.send_if_modified(|faults| {
            let loses = faults.to_lose > 0;
            faults.to_lose = faults.to_lose.saturating_sub(1);
            loses
        })
    }

    fn request(&self, revision: u64) {
        self.delivery.send_if_modified(|delivery| match delivery {
            Delivery::OnRequest(until) if *until < revision => {
                *until = revision;
                true
            }
            _ => false,
        });
    }
}

/// The backend of one store of a [`SharedMemory`].
#[derive(Debug)]
pub struct SharedMemoryBackend {
    service: SharedMemory,
    stream: StoreStream,
    running: Mutex<Option<RunningStream>>,
}

#[derive(Debug)]
struct RunningStream {
    feed: Feed,
    task: AbortHandle,
}

impl SharedMemoryBackend {
    /// Controls the stream of changes to the store of this backend.
    pub fn stream(&self) -> StoreStream {
        self.stream.clone()
    }

    fn feed(&self) -> Result<Feed, Unavailable> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let feed = running.as_ref().map(|running| running.feed.clone());
        feed.ok_or_else(|| Unavailable("the store is closed".to_owned()))
    }

    async fn decide(&self, write: Write, fences: Vec<Fence>) -> Result<WriteDecision, CommitFailure> {
        let feed = self.feed()?;
        let failure = self.service.lock().failures.remove(&write.key);
        let mut hold = self.service.lock().holds.remove(&write.key);
        if let Some(hold) = &mut hold {
            hold.stop(HoldPoint::BeforeDecision).await;
        }
        self.service.lock().reachable()?;
        if failure == Some(SharedFailure::NotStored) {
            return Err(CommitFailure::NotStored("etcdserver: no leader".to_owned()));
        }
        if failure == Some(SharedFailure::TimedOut) {
            return Err(CommitFailure::TimedOut("context deadline exceeded".to_owned()));
        }
        let before = feed.entry(&write.key);
        let (key, change) = (Arc::clone(&write.key), write.change.clone());
        let (service, mut under_way) = (self.service.clone(), hold);
        let request = tokio::spawn(async move {
            if let Some(hold) = &mut under_way {
                hold.stop(HoldPoint::InNetwork).await;
            }
            (service.transact(write, &fences), under_way)
        });
        let (decided, mut hold) =
            request.await.map_err(|_| CommitFailure::Unknown("the service has stopped".to_owned()))?;
        if let Some(hold) = &mut hold {
            hold.stop(HoldPoint::BeforeAnswer).await;
        }
        match decided {
            Ok(_) if failure.is_some() => {
                Err(CommitFailure::Unknown("etcdserver: request timed out".to_owned()))
            }
            Ok((revision, replaced)) => {
                self.stream.request(revision);
                feed.committed(OwnWrite { key, change, revision, replaced, before }).await
            }
            Err(SharedRefusal::Fenced) => Ok(WriteDecision::Fenced),
            Err(SharedRefusal::State(at)) => {
                self.stream.request(at);
                feed.reached(at).await;
                Ok(WriteDecision::Refused { at })
            }
        }
    }
}

/// Feeds the changes of the service in order.
async fn deliver(stream: StoreStream, feed: Feed) {
    let service = &stream.service;
    let mut revision = service.0.revision.subscribe();
    let mut delivery = stream.delivery.subscribe();
    let mut faults = stream.faults.subscribe();
    let mut reloads = 0;
    loop {
        let asked = faults.borrow_and_update().reloads;
        if asked > reloads {
            reloads = asked;
            let state = service.lock();
            let (revision, live) = (state.revision(), state.live.values().cloned().collect());
            drop(state);
            feed.reload(revision, live);
        }
        revision.mark_unchanged();
        let until = match *delivery.borrow_and_update() {
            Delivery::All => u64::MAX,
            Delivery::Until(until) | Delivery::OnRequest(until) => until,
        };
        let from = feed.revision();
        let (changes, last) = {
            let state = service.lock();
            let is_due = |done: &&DecidedChange| done.revision > from && done.revision <= until;
            let due = state.log.iter().filter(is_due);
            let changes: Vec<_> = due.filter(|_| !stream.loses()).cloned().collect();
            (changes, state.revision().min(until))
        };
        drop(feed.apply(changes));
        if last > from {
            feed.advance(last);
        }
        tokio::select! {
            changed = revision.changed() => if changed.is_err() { return },
            changed = delivery.changed() => if changed.is_err() { return },
            changed = faults.changed() => if changed.is_err() { return },
        }
    }
}

impl Backend for SharedMemoryBackend {
    fn start(&self, feed: Feed) -> BackendFuture<'_, Result<(), OpenError>> {
        let state = self.service.lock();
        feed.load(state.revision(), state.compacted, state.live.values().cloned().collect());
        drop(state);
        let task = tokio::spawn(deliver(self.stream.clone(), feed.clone())).abort_handle();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(RunningStream { feed, task });
        Box::pin(std::future::ready(Ok(())))
    }

    fn commit(&self, write: Write) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(self.decide(write, Vec::new()))
    }

    fn commit_fenced(
        &self,
        write: Write,
        fences: Vec<Fence>,
    ) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(self.decide(write, fences))
    }

    fn range(&self, range: Range) -> BackendFuture<'_, Result<RangePage, ReadError>> {
        let page = self.service.lock().range(&range).map(|mut records| {
            let remaining = records.len().saturating_sub(range.limit) as u64;
            records.truncate(range.limit);
            RangePage { records, remaining }
        });
        Box::pin(std::future::ready(page))
    }

    fn key_revisions(&self, range: Range) -> Option<BackendFuture<'_, Result<KeyPage, ReadError>>> {
        let page = self.service.lock().range(&range).map(|records| {
            let keys: Vec<(Arc<str>, u64)> = records
                .iter()
                .take(range.limit)
                .map(|stored| (Arc::clone(&stored.key), stored.revision))
                .collect();
            let more = keys.last().filter(|_| records.len() > keys.len()).map(|(key, _)| Arc::clone(key));
            KeyPage { keys, more }
        });
        Some(Box::pin(std::future::ready(page)))
    }

    fn reload(&self) {
        self.stream.reload();
    }

    fn probe(&self) -> Option<BackendFuture<'_, Result<(), Unavailable>>> {
        Some(Box::pin(async { self.service.lock().reachable() }))
    }

    fn compact(&self, revision: u64) {
        let mut state = self.service.lock();
        state.compacted = state.compacted.max(revision);
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn latest(&self) -> Option<BackendFuture<'_, Result<u64, Unavailable>>> {
        Some(Box::pin(async {
            let revision = {
                let state = self.service.lock();
                state.reachable()?;
                state.revision()
            };
            self.stream.request(revision);
            Ok(revision)
        }))
    }

    fn health(&self) -> Result<(), Unavailable> {
        self.feed().map(drop)
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        if let Some(running) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() {
            running.task.abort();
        }
        Box::pin(std::future::ready(()))
    }
}
