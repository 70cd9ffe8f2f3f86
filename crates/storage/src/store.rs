//! The store: reads come from memory, writes go through the backend, watches read the event history.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, CommitFailure, Feed, OverQuota, Range, RangePage, Unavailable, WriteDecision};
use crate::clock::Clock;
use crate::clusters::StoreOverride;
use crate::error::{CommitError, OpenError, ReadError, WatchError};
use crate::expiry::Sweeper;
use crate::key::{self, ShardEnd};
use crate::quota::{Space, SpaceQuota};
use crate::record::{Change, Fence, StoreEvent, StoredEntry, Write};
use crate::snapshot::LiveSnapshot;
use crate::table::StoredEntries;
use crate::watch::Watch;
use crate::working_set::{ListAtRevision, WorkingSet};

/// How long [`Store::fresh`] waits for memory to reach the newest revision, as kube-apiserver does.
const FRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// Limits and configuration of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Number of events retained for watches and for lists at older revisions.
    pub history_events: usize,
    /// Maximum bytes of the retained events.
    pub history_bytes: usize,
    /// How long old revisions are retained.
    pub retain_for: Duration,
    /// Maximum number of retained old revisions.
    pub retain_revisions: u64,
    /// Bytes that may be written before the records they replaced are discarded.
    pub retain_bytes: u64,
    /// Maximum live bytes; `None` means no limit.
    pub quota: Option<u64>,
    /// Maximum length of a key in bytes.
    pub max_key: usize,
    /// Maximum size of a record in bytes, body and facts together.
    pub max_record: usize,
    /// Divides the key space into tables: directories that are often listed and counted should have their own.
    pub shard_end: ShardEnd,
    /// The time source; tests inject their own.
    pub clock: Clock,
    /// The time since the Unix epoch, which deadlines are stored in; tests inject their own.
    pub wall_clock: Clock,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            history_events: 100_000,
            history_bytes: 64 << 20,
            retain_for: Duration::from_mins(5),
            retain_revisions: 200_000,
            retain_bytes: 1 << 30,
            quota: None,
            max_key: 1024,
            max_record: 4 << 20,
            shard_end: |_| None,
            clock: Clock::system(),
            wall_clock: Clock::since_epoch(),
        }
    }
}

/// Selects the entries of a list.
#[derive(Debug, Clone, Copy)]
pub struct ListRequest<'a> {
    /// A directory, which ends with `/`, or one key, which does not.
    pub scope: &'a str,
    pub at: ListAt,
    /// Return only keys after this one.
    pub after: Option<&'a str>,
    /// Maximum number of entries; 0 means all.
    pub limit: usize,
}

impl<'a> ListRequest<'a> {
    /// All entries in `scope` at the current revision.
    pub fn all(scope: &'a str) -> ListRequest<'a> {
        ListRequest { scope, at: ListAt::Latest, after: None, limit: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListAt {
    /// The revision that is current when the list is read.
    Latest,
    /// Exactly this revision, even if newer ones exist. A shared backend is asked for one that memory has not reached yet.
    Exact(u64),
}

/// A part of the key space at one revision.
#[derive(Debug, Clone)]
pub struct ListPage {
    /// The entries in key order.
    pub entries: StoredEntries,
    /// The revision at which these are the entries.
    pub revision: u64,
    /// The key after which the next page starts, if there is one.
    pub more: Option<Arc<str>>,
    /// Number of entries after these.
    pub remaining: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFrom {
    /// Start with the first event after this revision.
    Revision(u64),
    /// Start with the next event.
    Now,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub struct Committed {
    pub revision: u64,
    /// The new entry; for a deletion the last state, with the revision of the deletion.
    pub entry: Arc<StoredEntry>,
    /// The event that watchers receive.
    pub event: Arc<StoreEvent>,
}

/// A revisioned key-value store. Clones share the same store.
#[derive(Clone)]
pub struct Store {
    pub(crate) set: Arc<WorkingSet>,
    pub(crate) backend: Arc<dyn Backend>,
    max_key: usize,
    max_record: usize,
    is_shared: bool,
    /// Deletes expired keys; `None` if the backend does.
    sweeper: Option<Arc<Sweeper>>,
    /// Stores of other clusters, which hold parts of the key space.
    pub(crate) overrides: Arc<[StoreOverride]>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a backend and loads its data.
    pub async fn open(backend: impl Backend, options: StoreOptions) -> Result<Store, OpenError> {
        Store::open_dyn(Arc::new(backend), options).await
    }

    /// Like [`Store::open`], for a backend whose type is not known here.
    pub async fn open_dyn(backend: Arc<dyn Backend>, options: StoreOptions) -> Result<Store, OpenError> {
        let set = Arc::new(WorkingSet::new(&options));
        let feed = Feed(Arc::clone(&set));
        backend.start(feed.clone()).await?;
        feed.loaded();
        let is_shared = backend.is_shared();
        let sweeper = (!is_shared).then(|| Arc::new(Sweeper::start(&set, &backend)));
        let StoreOptions { max_key, max_record, .. } = options;
        Ok(Store { set, backend, max_key, max_record, is_shared, sweeper, overrides: Arc::default() })
    }

    /// True if other processes may write to the same backend: then reads may be older than writes that those have acknowledged, unless
    /// [`Store::fresh`] was called before.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The current revision. If other clusters hold parts of the key space, theirs differ: see [`Store::of`].
    pub fn revision(&self) -> u64 {
        self.set.revision()
    }

    /// Waits until reads see every write that was acknowledged, by any server, before this call. Returns at once for a backend
    /// without other writers. Fails if memory is still behind after some seconds.
    pub async fn fresh(&self) -> Result<u64, ReadError> {
        if self.is_shared {
            for cluster in self.clusters() {
                let latest = cluster.latest_revision().await?;
                let reached = tokio::time::timeout(FRESH_TIMEOUT, cluster.set.reached(latest)).await;
                reached.map_err(|_| {
                    ReadError::Unavailable(format!(
                        "memory is behind the store: it has not reached revision {latest} in {FRESH_TIMEOUT:?}"
                    ))
                })?;
            }
        }
        Ok(self.revision())
    }

    /// The newest revision of the backend; reads of a shared one may not have reached it yet.
    pub async fn latest_revision(&self) -> Result<u64, ReadError> {
        match self.backend.latest() {
            Some(latest) => latest.await.map_err(|Unavailable(reason)| ReadError::Unavailable(reason)),
            None => Ok(self.revision()),
        }
    }

    /// Waits until the store has reached `revision` and notified its watchers. The caller must set a time limit.
    pub async fn reached(&self, revision: u64) {
        self.set.reached(revision).await;
    }

    pub fn get(&self, key: &str) -> Option<Arc<StoredEntry>> {
        self.of(key).set.get(key)
    }

    /// All entries in `scope` at the current revision.
    pub fn snapshot(&self, scope: &str) -> ListPage {
        let (entries, revision) = self.select(scope);
        ListPage { entries, revision, more: None, remaining: 0 }
    }

    /// All entries at the current revision, to be read in key order without delaying writers; without those of other clusters.
    pub fn live_snapshot(&self) -> LiveSnapshot {
        let (tables, revision) = self.set.tables();
        LiveSnapshot::new(tables, revision)
    }

    /// Lists a part of the key space at one revision.
    pub async fn list(&self, list: ListRequest<'_>) -> Result<ListPage, ReadError> {
        let cluster = self.of(list.scope);
        let limit = if list.limit == 0 { usize::MAX } else { list.limit };
        let (mut entries, revision) = match list.at {
            ListAt::Latest => cluster.set.select(list.scope, list.after),
            ListAt::Exact(revision) => match cluster.set.select_at(list.scope, revision, list.after) {
                ListAtRevision::Known(entries) => (entries, revision),
                ListAtRevision::Compacted(oldest) => return Err(ReadError::Compacted { oldest }),
                // The backend may have it already.
                ListAtRevision::Future(_) if cluster.is_shared => {
                    return cluster.range(list, revision, limit).await;
                }
                ListAtRevision::Future(current) => return Err(ReadError::Future { current }),
                ListAtRevision::Unknown => return cluster.range(list, revision, limit).await,
            },
        };
        let remaining = entries.truncate(limit) as u64;
        Ok(ListPage::new(entries, revision, remaining))
    }

    /// Number of keys that `scope` covers now.
    pub fn count(&self, scope: &str) -> usize {
        self.select(scope).0.len()
    }

    /// Performs one compare-and-swap. When it returns, the write is durable and visible to reads.
    ///
    /// Once this has been polled, the write may happen even if the future is dropped.
    pub async fn commit(&self, write: Write) -> Result<Committed, CommitError> {
        self.decide(write, Vec::new()).await
    }

    /// Like [`Store::commit`], but fails with [`CommitError::Fenced`] if the key of a fence no longer has the revision of the fence. With an
    /// exclusive backend, memory has the change of that key when this fails. A fence on a key in another cluster has no effect, because keys
    /// of different clusters cannot be compared in one step.
    pub async fn commit_fenced(
        &self,
        write: Write,
        mut fences: Vec<Fence>,
    ) -> Result<Committed, CommitError> {
        fences.retain(|fence| std::ptr::eq(self.of(&write.key), self.of(&fence.key)));
        self.decide(write, fences).await
    }

    async fn decide(&self, write: Write, fences: Vec<Fence>) -> Result<Committed, CommitError> {
        self.check(&write)?;
        let key = Arc::clone(&write.key);
        let cluster = self.of(&key);
        let decision = if fences.is_empty() {
            cluster.backend.commit(write).await
        } else {
            cluster.backend.commit_fenced(write, fences).await
        };
        if let Some(revision) = cluster.set.due() {
            cluster.backend.compact(revision);
        }
        match decision {
            Ok(WriteDecision::Committed(event)) => {
                Ok(Committed { revision: event.revision, entry: Arc::clone(&event.entry), event })
            }
            Ok(WriteDecision::Refused { .. }) => Err(CommitError::Conflict { current: self.get(&key) }),
            Ok(WriteDecision::Fenced) => Err(CommitError::Fenced),
            Ok(WriteDecision::OverQuota(OverQuota { live, quota })) => {
                Err(CommitError::OverQuota { live, quota })
            }
            Err(CommitFailure::NotStored(reason)) => Err(CommitError::Unavailable(reason)),
            Err(CommitFailure::Unknown(reason)) => Err(CommitError::Unknown(reason)),
            Err(CommitFailure::TimedOut(reason)) => Err(CommitError::TimedOut(reason)),
        }
    }

    /// Current space usage and quota.
    pub fn space(&self) -> Space {
        let live = self.set.live_bytes();
        let quota = self.set.quota.as_ref();
        Space {
            live,
            file: self.backend.file_bytes().unwrap_or(live),
            quota: quota.map(SpaceQuota::limit),
            alarm: quota.is_some_and(SpaceQuota::is_raised),
        }
    }

    /// Watches the keys that `scope` covers. All of them must be in one cluster: see [`Store::list_and_watch`].
    pub fn watch(&self, scope: &str, from: WatchFrom) -> Result<Watch, WatchError> {
        let cluster = self.of(scope);
        let reloads = cluster.set.reloads();
        let (oldest, current) = cluster.set.span();
        let revision = match from {
            WatchFrom::Now => current,
            WatchFrom::Revision(revision) if revision < oldest => {
                return Err(WatchError::Compacted { oldest });
            }
            WatchFrom::Revision(revision) if revision > current => {
                return Err(WatchError::Future { current });
            }
            WatchFrom::Revision(revision) => revision,
        };
        Ok(Watch::new(Arc::clone(&cluster.set), scope, revision, reloads))
    }

    /// Lists the current entries in `scope` and watches them from that revision on. The scope may cover keys of several clusters.
    pub fn list_and_watch(&self, scope: &str) -> (ListPage, Watch) {
        let parts = self.parts(scope);
        let others = parts.others.iter().map(|part| part.watch(scope)).collect();
        let watch = parts.first.watch(scope).and_also(others);
        let (entries, revision) = parts.merge();
        (ListPage { entries, revision, more: None, remaining: 0 }, watch)
    }

    /// Number of active watches.
    pub fn watches(&self) -> usize {
        self.clusters().map(|cluster| cluster.set.watchers.count()).sum()
    }

    /// Discards all revisions before `revision`. The store also does so by itself, according to its [`StoreOptions`].
    pub fn compact(&self, revision: u64) {
        let compacted = self.set.compact(revision);
        self.backend.compact(compacted);
    }

    /// Reports whether writes are expected to succeed.
    pub fn health(&self) -> Result<(), String> {
        self.backend.health().map_err(|Unavailable(reason)| reason)
    }

    /// Size in bytes of the database that a shared backend uses; `None` for an exclusive backend, whose file [`Store::space`] has.
    pub fn database_bytes(&self) -> Option<impl Future<Output = Result<u64, String>> + Send> {
        let size = self.backend.database_bytes()?;
        Some(async move { size.await.map_err(|Unavailable(reason)| reason) })
    }

    /// Reads from the service that a shared backend uses, to check that it answers; `None` for an exclusive backend.
    pub fn probe(&self) -> Option<impl Future<Output = Result<(), String>> + Send> {
        let probe = self.backend.probe()?;
        Some(async move { probe.await.map_err(|Unavailable(reason)| reason) })
    }

    /// Finishes the writes in progress, ends the watches and releases the backend. Reads still work.
    pub async fn close(&self) {
        if let Some(sweeper) = &self.sweeper {
            sweeper.stop();
        }
        for cluster in self.clusters() {
            cluster.backend.close().await;
            cluster.set.watchers.close();
        }
    }

    async fn range(&self, list: ListRequest<'_>, revision: u64, limit: usize) -> Result<ListPage, ReadError> {
        let range =
            Range { scope: list.scope.to_owned(), revision, after: list.after.map(ToOwned::to_owned), limit };
        let RangePage { records, remaining } = self.backend.range(range).await?;
        let entries = records
            .into_iter()
            .map(|stored| {
                Arc::new(StoredEntry::new(stored.key, stored.revision, stored.created, &stored.record))
            })
            .collect();
        Ok(ListPage::new(StoredEntries::from_vec(entries), revision, remaining))
    }

    /// Maximum size of a record in bytes.
    pub fn max_record(&self) -> usize {
        self.max_record
    }

    fn check(&self, write: &Write) -> Result<(), CommitError> {
        if !key::is_key(&write.key) {
            return Err(CommitError::Invalid(format!("`{}` is not a key", write.key)));
        }
        let within = |what, size, limit| {
            if size > limit { Err(CommitError::TooLarge { what, size, limit }) } else { Ok(()) }
        };
        within("key", write.key.len(), self.max_key)?;
        if let Change::Put(record) = &write.change {
            if !record.is_valid() {
                return Err(CommitError::Invalid(
                    "the offset of the revision is outside of the body".to_owned(),
                ));
            }
            within("record", record.size(), self.max_record)?;
        }
        Ok(())
    }
}

impl ListPage {
    fn new(entries: StoredEntries, revision: u64, remaining: u64) -> ListPage {
        let last = if remaining > 0 { entries.last() } else { None };
        let more = last.map(|last| Arc::clone(&last.key));
        ListPage { entries, revision, more, remaining }
    }
}
