//! The [`Backend`] trait, which makes writes durable, and the [`Feed`] through which a backend reports changes to the store.
//!
//! A backend decides each compare-and-swap and orders the accepted ones by revision. It passes every change to the feed,
//! once and in revision order, including changes of other writers; a commit is answered only after its change is durable
//! and in the feed. An exclusive backend (memory, embedded) is the only writer of its data, so it decides against what it
//! has fed ([`Batch`]). A shared one (etcd) leaves the decision to the shared service, feeds the events of that service's
//! watch, and answers a commit when the watch has reached its revision ([`Feed::event`]).

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{OpenError, ReadError};
use crate::record::{Change, ChangeKind, Fence, Record, StoreEvent, StoredEntry, Write};
use crate::working_set::WorkingSet;
pub use crate::working_set::{AppliedChanges, KeyRevisions};

/// How long a stored write waits for the feed to report it.
const ECHO_TIMEOUT: Duration = Duration::from_secs(10);

/// The boxed future that backend methods return.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub trait Backend: Send + Sync + 'static {
    /// Loads the stored data ([`Feed::load`], then [`Feed::apply`] for the history since) and starts feeding changes.
    fn start(&self, feed: Feed) -> BackendFuture<'_, Result<(), OpenError>>;

    /// Decides one write and makes it durable. Writes that arrive together may share one transaction.
    ///
    /// Once called, the write may happen even if the future is dropped.
    fn commit(&self, write: Write) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>>;

    /// Like [`Backend::commit`], in one step with the comparison of the fences.
    fn commit_fenced(
        &self,
        write: Write,
        fences: Vec<Fence>,
    ) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>>;

    /// Reads a part of the key space at a revision that is no longer in the event history.
    fn range(&self, range: Range) -> BackendFuture<'_, Result<RangePage, ReadError>>;

    /// Size of the store file in bytes; `None` for a backend without a file.
    fn file_bytes(&self) -> Option<u64> {
        None
    }

    /// Allows the backend to discard revisions before this one, at a time of its choice.
    fn compact(&self, revision: u64);

    /// True if other processes may write to the same data. Then the backend also deletes expired keys.
    fn is_shared(&self) -> bool {
        false
    }

    /// The newest revision of a shared backend. `None` for an exclusive backend: the last fed revision is the newest.
    fn latest(&self) -> Option<BackendFuture<'_, Result<u64, Unavailable>>> {
        None
    }

    /// Reads from the service that a shared backend uses; `None` for an exclusive backend.
    fn probe(&self) -> Option<BackendFuture<'_, Result<(), Unavailable>>> {
        None
    }

    /// Reads the keys and revisions of a part of the key space at one revision, to compare them with the working set. `None` for an
    /// exclusive backend: its working set is the result of its own writes.
    fn key_revisions(&self, _: Range) -> Option<BackendFuture<'_, Result<KeyPage, ReadError>>> {
        None
    }

    /// Lets a shared backend replace the content of the working set soon ([`Feed::reload`]), because it differs from the stored data.
    fn reload(&self) {}

    /// Size in bytes of the database that a shared backend uses; `None` for other backends.
    fn database_bytes(&self) -> Option<BackendFuture<'_, Result<u64, Unavailable>>> {
        None
    }

    /// Reports whether writes are expected to succeed.
    fn health(&self) -> Result<(), Unavailable>;

    /// Finishes writes in progress and releases files and locks. Later commits fail.
    fn close(&self) -> BackendFuture<'_, ()>;
}

/// The backend cannot work at present; the text says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Why a write was not decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitFailure {
    /// The write is not stored, and will not be.
    NotStored(String),
    /// The write may be stored, now or later.
    Unknown(String),
    /// The write may be stored, now or later: there was no answer in the time that one write may take.
    TimedOut(String),
}

impl From<Unavailable> for CommitFailure {
    fn from(Unavailable(reason): Unavailable) -> CommitFailure {
        CommitFailure::NotStored(reason)
    }
}

#[derive(Debug, Clone)]
pub enum WriteDecision {
    /// The write is durable; this is its event.
    Committed(Arc<StoreEvent>),
    /// The key was not in the expected state at this revision.
    Refused {
        /// The revision at which it was decided; the feed has reached it.
        at: u64,
    },
    /// A key that fences the write has another revision.
    Fenced,
    OverQuota(OverQuota),
}

/// Details of a write that exceeds the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverQuota {
    /// Live bytes before the write.
    pub live: u64,
    pub quota: u64,
}

/// The reason why [`Batch::decide`] rejects a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRejection {
    /// The key is not in the expected state.
    State,
    /// A key that fences the write has another revision.
    Fenced,
    SpaceQuota(OverQuota),
}

/// A stored record with its key and revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub key: Arc<str>,
    /// The revision of the last change.
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    pub record: Record,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedChange {
    pub key: Arc<str>,
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    pub change: Change,
}

impl DecidedChange {
    pub(crate) fn apply_to(self, live: &mut BTreeMap<Arc<str>, StoredRecord>) {
        let DecidedChange { key, revision, created, change } = self;
        match change {
            Change::Put(record) => {
                live.insert(Arc::clone(&key), StoredRecord { key, revision, created, record });
            }
            Change::Delete => drop(live.remove(&key)),
        }
    }
}

/// A write of this process that a shared backend has stored.
#[derive(Debug)]
pub struct OwnWrite {
    pub key: Arc<str>,
    pub change: Change,
    pub revision: u64,
    /// The revision of the record that it replaced; 0 if it created the key.
    pub replaced: u64,
    /// The entry that the feed had before the write.
    pub before: Option<Arc<StoredEntry>>,
}

impl OwnWrite {
    /// `None` if the feed did not have the entry that the write replaced.
    fn into_event(self) -> Option<StoreEvent> {
        let OwnWrite { key, change, revision, replaced, before } = self;
        let previous =
            if replaced == 0 { None } else { Some(before.filter(|before| before.revision == replaced)?) };
        let (kind, entry) = match (change, &previous) {
            (Change::Put(record), previous) => {
                let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Created };
                let created = previous.as_ref().map_or(revision, |previous| previous.created);
                (kind, StoredEntry::new(key, revision, created, &record))
            }
            (Change::Delete, previous) => (ChangeKind::Deleted, previous.as_ref()?.at_revision(revision)),
        };
        Some(StoreEvent::new(kind, Arc::new(entry), previous))
    }
}

/// Selects a part of the key space at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// A directory (ending with `/`) or one key.
    pub scope: String,
    pub revision: u64,
    /// Return only keys after this one.
    pub after: Option<String>,
    /// Maximum number of records to return.
    pub limit: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangePage {
    /// Records in key order.
    pub records: Vec<StoredRecord>,
    /// Number of matching records after these.
    pub remaining: u64,
}

/// The result of [`Backend::key_revisions`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Keys in order, each with the revision of its last change.
    pub keys: Vec<(Arc<str>, u64)>,
    /// The key after which the next page starts, if there is one.
    pub more: Option<Arc<str>>,
}

/// The interface through which a backend fills and updates the working set.
#[derive(Debug, Clone)]
pub struct Feed(pub(crate) Arc<WorkingSet>);

impl Feed {
    /// Initializes the store with these records, in any order, as of `revision`; revisions before `compacted` cannot be read.
    pub fn load(&self, revision: u64, compacted: u64, records: Vec<StoredRecord>) {
        self.0.load(revision, compacted, records);
    }

    /// Replaces the content of a store that missed changes. Every watch ends as lagged: its events up to `revision` are unknown.
    pub fn reload(&self, revision: u64, records: Vec<StoredRecord>) {
        self.0.reload(revision, records);
    }

    /// Applies changes to the working set, in revision order: from here on reads see them. Watchers are notified when the
    /// result is dropped, so that a backend can answer its callers first.
    pub fn apply(&self, changes: Vec<DecidedChange>) -> AppliedChanges<'_> {
        self.0.apply(changes)
    }

    /// Reports that there are no changes to feed up to and including `revision`, so that waiters for a revision continue.
    /// Needed by a backend whose revisions are also used by keys outside this store.
    pub fn advance(&self, revision: u64) {
        self.0.advance(revision);
    }

    /// The revision of the last change that was fed.
    pub fn revision(&self) -> u64 {
        self.0.revision()
    }

    /// Marks the store as loaded: from here on the quota applies.
    pub(crate) fn loaded(&self) {
        if let Some(quota) = &self.0.quota {
            quota.load(self.0.live_bytes());
        }
    }

    /// The current revisions of a key; `None` if it does not exist.
    pub fn revisions(&self, key: &str) -> Option<KeyRevisions> {
        self.0.revisions(key)
    }

    /// Waits until the feed has reached `revision`.
    pub async fn reached(&self, revision: u64) {
        self.0.reached(revision).await;
    }

    /// Waits until the feed has reached `revision`; returns its event if it is still in the history.
    pub async fn event(&self, revision: u64) -> Option<Arc<StoreEvent>> {
        self.0.reached(revision).await;
        self.0.event(revision)
    }

    /// The decision about a write that a shared backend has stored: its event, once the feed has reached it, so that reads of this
    /// store see the write. If the feed is late or has lost the event, the event is built from the write.
    pub async fn committed(&self, write: OwnWrite) -> Result<WriteDecision, CommitFailure> {
        let revision = write.revision;
        let fed = tokio::time::timeout(ECHO_TIMEOUT, self.event(revision)).await.ok().flatten();
        let fed = fed.filter(|event| event.entry.key == write.key);
        let event = fed.or_else(|| write.into_event().map(Arc::new));
        event.map(WriteDecision::Committed).ok_or_else(|| {
            CommitFailure::Unknown(format!(
                "the write is stored with revision {revision}, but its event is missing"
            ))
        })
    }

    pub fn entry(&self, key: &str) -> Option<Arc<StoredEntry>> {
        self.0.get(key)
    }

    /// The time at the end of `ttl`, since the Unix epoch.
    pub(crate) fn deadline(&self, ttl: Duration) -> Duration {
        self.0.deadlines.now().saturating_add(ttl)
    }

    /// Lets the store delete `key` at this time since the Unix epoch, if its revision is still `revision`. Only for an exclusive
    /// backend.
    pub(crate) fn expire_at(&self, key: &Arc<str>, revision: u64, deadline: Duration) {
        self.0.deadlines.set(key, revision, deadline);
    }

    /// When an entry expires, since the Unix epoch.
    pub(crate) fn deadline_of(&self, entry: &StoredEntry) -> Option<Duration> {
        self.0.deadlines.of(&entry.key, entry.revision)
    }

    /// All live entries, in key order.
    pub(crate) fn live(&self) -> crate::StoredEntries {
        self.0.select("/", None).0
    }
}

/// Decides writes one after the other for a backend that is the only writer of its data: against the working set, and
/// against the writes decided earlier in the same batch.
#[derive(Debug)]
pub struct Batch<'f> {
    feed: &'f Feed,
    revision: u64,
    /// Live bytes after the decided writes, as the quota counts them.
    live: u64,
    decided: HashMap<Arc<str>, Option<KeyRevisions>>,
}

impl<'f> Batch<'f> {
    /// An empty batch that starts at the last fed revision.
    pub fn new(feed: &'f Feed) -> Batch<'f> {
        Batch { feed, revision: feed.revision(), live: feed.0.live_bytes(), decided: HashMap::new() }
    }

    /// Decides a write: returns its change, with the next revision, and the version that it replaces.
    pub fn decide(
        &mut self,
        write: Write,
        fences: &[Fence],
    ) -> Result<(DecidedChange, Option<KeyRevisions>), WriteRejection> {
        let Write { key, expect, change, priority, ttl: _ } = write;
        let current = self.revisions(&key);
        if !expect.admits(&change, current.map(|current| current.revision)) {
            return Err(WriteRejection::State);
        }
        let is_unchanged =
            |fence: &Fence| self.revisions(&fence.key).is_some_and(|key| key.revision == fence.revision);
        if !fences.iter().all(is_unchanged) {
            return Err(WriteRejection::Fenced);
        }
        let charge = match &change {
            Change::Put(record) => record.charge(&key),
            Change::Delete => 0,
        };
        let replaced = current.map_or(0, |current| current.charge);
        let live = self.live.saturating_sub(replaced).saturating_add(charge);
        if let Some(quota) = &self.feed.0.quota
            && !quota.admits(priority, self.live, live)
        {
            return Err(WriteRejection::SpaceQuota(OverQuota { live: self.live, quota: quota.limit() }));
        }
        self.live = live;
        self.revision += 1;
        let revision = self.revision;
        let created = current.map_or(revision, |current| current.created);
        let revisions = match change {
            Change::Put(_) => Some(KeyRevisions { revision, created, charge }),
            Change::Delete => None,
        };
        self.decided.insert(Arc::clone(&key), revisions);
        Ok((DecidedChange { key, revision, created, change }, current))
    }

    /// The revisions of a key after the decided writes.
    fn revisions(&self, key: &str) -> Option<KeyRevisions> {
        match self.decided.get(key) {
            Some(decided) => *decided,
            None => self.feed.revisions(key),
        }
    }

    /// The revision of the last accepted write.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}
