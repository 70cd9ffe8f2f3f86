//! What makes writes durable, and the [`Feed`] through which it tells the store about them.
//!
//! A backend decides each compare-and-swap and orders the accepted ones by revision. It tells every change to the
//! feed, once and in revision order, whoever made it; a commit is answered only after its change is durable and in the
//! feed. An exclusive backend (memory, embedded) is the only writer of its data, so it decides against what it has fed
//! ([`Batch`]). A shared one (etcd) leaves the decision to the shared service, feeds what that service's watch says,
//! and answers a commit when the watch has reached its revision ([`Feed::event`]).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::{OpenError, ReadError};
use crate::record::{Change, Event, Expect, Record, Write};
use crate::working_set::WorkingSet;
pub use crate::working_set::{Applied, Version};

/// A future that a backend hands out.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A durable, revisioned key space.
pub trait Backend: Send + Sync + 'static {
    /// Loads what is stored ([`Feed::load`], then [`Feed::apply`] for the history since) and goes on feeding.
    fn start(&self, feed: Feed) -> BoxFuture<'_, Result<(), OpenError>>;

    /// Decides one write and makes it durable. Writes that arrive together may share the cost.
    ///
    /// Once called, the write may happen even if the future is dropped.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Decision, Unavailable>>;

    /// Reads a part of the key space as it was at a revision that the feed no longer knows.
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangePage, ReadError>>;

    /// The bytes of the file, for a backend that has one.
    fn file_bytes(&self) -> Option<u64> {
        None
    }

    /// Asks that revisions before this one be given up, by and by.
    fn compact(&self, revision: u64);

    /// The newest revision there is, for a backend that others write to as well. `None`: nobody else does, and what has
    /// been fed is the newest.
    fn latest(&self) -> Option<BoxFuture<'_, Result<u64, Unavailable>>> {
        None
    }

    /// Whether writes can be expected to succeed.
    fn health(&self) -> Result<(), Unavailable>;

    /// Finishes what is under way and releases what is held. Later commits fail.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The backend cannot do its work at present.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// How a write was decided.
#[derive(Debug, Clone)]
pub enum Decision {
    /// It is durable, and this is what it did.
    Committed(Arc<Event>),
    /// The key was not in the expected state at this revision.
    Refused {
        /// The revision at which it was decided; the feed has reached it.
        at: u64,
    },
    /// The write needs room, and the store is full.
    OverQuota(OverQuota),
}

/// A write does not fit into the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverQuota {
    /// How many bytes are live.
    pub live: u64,
    /// The quota.
    pub quota: u64,
}

/// Why [`Batch::decide`] does not accept a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The key is not in the expected state.
    State,
    /// The write needs room, and the store is full.
    Quota(OverQuota),
}

/// A stored record with its key and revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The key.
    pub key: Arc<str>,
    /// The revision of the last change.
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    /// What was written.
    pub record: Record,
}

/// A change that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The key.
    pub key: Arc<str>,
    /// The revision of the change.
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    /// What was done.
    pub change: Change,
}

/// Which part of the key space to read, and as of when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// A directory (ending with `/`) or one key.
    pub scope: String,
    /// The revision to read at.
    pub revision: u64,
    /// Only keys after this one.
    pub after: Option<String>,
    /// At most this many.
    pub limit: usize,
}

/// What [`Backend::range`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangePage {
    /// The records in key order.
    pub records: Vec<Stored>,
    /// How many more there are after them.
    pub remaining: u64,
}

/// The way from a backend into the working set.
#[derive(Debug, Clone)]
pub struct Feed(pub(crate) Arc<WorkingSet>);

impl Feed {
    /// Begins with these records, in any order, as they were at `revision`; nothing before `compacted` can be read.
    pub fn load(&self, revision: u64, compacted: u64, records: Vec<Stored>) {
        self.0.load(revision, compacted, records);
    }

    /// Takes changes into the working set, in revision order: from here on reads see them. Watchers are told when the
    /// result is dropped, so that a backend can answer its callers first.
    pub fn apply(&self, changes: Vec<Done>) -> Applied<'_> {
        self.0.apply(changes)
    }

    /// There is nothing to feed up to and including `revision`. A backend whose revisions others use up as well tells
    /// so, and those who wait for a revision go on.
    pub fn advance(&self, revision: u64) {
        self.0.advance(revision);
    }

    /// The revision of the last change that was fed.
    pub fn revision(&self) -> u64 {
        self.0.revision()
    }

    /// The store has been loaded: from here on the quota applies.
    pub(crate) fn loaded(&self) {
        if let Some(quota) = &self.0.quota {
            quota.load(self.0.live_bytes());
        }
    }

    /// What a key's revisions are.
    pub fn version(&self, key: &str) -> Option<Version> {
        self.0.version(key)
    }

    /// Waits until the feed has reached `revision`.
    pub async fn reached(&self, revision: u64) {
        self.0.reached(revision).await;
    }

    /// Waits until the feed has reached `revision` and gives the event of that revision, if it is still known.
    pub async fn event(&self, revision: u64) -> Option<Arc<Event>> {
        self.0.reached(revision).await;
        self.0.event(revision)
    }

    /// All that is live now, in key order.
    pub(crate) fn live(&self) -> crate::Entries {
        self.0.select("/", None).0
    }
}

/// Decides writes one after the other for a backend that is the only writer of its data: against the working set, and
/// against those decided before in the same batch.
#[derive(Debug)]
pub struct Batch<'f> {
    feed: &'f Feed,
    revision: u64,
    /// What will be live, as the quota counts it.
    live: u64,
    decided: HashMap<Arc<str>, Option<Version>>,
}

impl<'f> Batch<'f> {
    /// An empty batch after what has been fed.
    pub fn new(feed: &'f Feed) -> Batch<'f> {
        Batch { feed, revision: feed.revision(), live: feed.0.live_bytes(), decided: HashMap::new() }
    }

    /// The change a write makes, with the next revision, and the version it replaces.
    pub fn decide(&mut self, write: Write) -> Result<(Done, Option<Version>), Rejection> {
        let Write { key, expect, change, priority } = write;
        let current = match self.decided.get(&key) {
            Some(decided) => *decided,
            None => self.feed.version(&key),
        };
        let expected = match expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current.is_some_and(|current| current.revision == revision),
            Expect::Any => true,
        };
        if !expected || (change == Change::Delete && current.is_none()) {
            return Err(Rejection::State);
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
            return Err(Rejection::Quota(OverQuota { live: self.live, quota: quota.limit() }));
        }
        self.live = live;
        self.revision += 1;
        let revision = self.revision;
        let created = current.map_or(revision, |current| current.created);
        let version = match change {
            Change::Put(_) => Some(Version { revision, created, charge }),
            Change::Delete => None,
        };
        self.decided.insert(Arc::clone(&key), version);
        Ok((Done { key, revision, created, change }, current))
    }

    /// The revision of the last accepted write.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}
