//! Deletes keys with a time to live, for backends that do not do so themselves.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use crate::backend::{Backend, CommitFailure};
use crate::clock::Clock;
use crate::record::{Change, Expect, Write, WritePriority};
use crate::working_set::WorkingSet;

/// The time of day is read again after this time, because it may have been set.
const MAX_SLEEP: Duration = Duration::from_mins(1);
/// Pause after the backend could not delete.
const RETRY: Duration = Duration::from_secs(1);
/// Keys deleted at the same time.
const DELETED_TOGETHER: usize = 64;

/// The keys with a time to live.
pub(crate) struct Deadlines {
    clock: Clock,
    state: Mutex<DeadlineIndex>,
    /// Notified when a deadline is set.
    added: Notify,
}

#[derive(Debug, Default)]
struct DeadlineIndex {
    by_time: BTreeSet<(Duration, Arc<str>)>,
    by_key: HashMap<Arc<str>, KeyDeadline>,
}

#[derive(Debug, Clone, Copy)]
struct KeyDeadline {
    revision: u64,
    /// When, since the Unix epoch.
    at: Duration,
}

impl fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadlines").field("keys", &self.lock().by_key.len()).finish_non_exhaustive()
    }
}

impl Deadlines {
    pub(crate) fn new(clock: Clock) -> Deadlines {
        Deadlines { clock, state: Mutex::default(), added: Notify::new() }
    }

    /// The time since the Unix epoch.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Sets the deadline of the record of `key` at `revision`; it replaces that of an older record.
    pub(crate) fn set(&self, key: &Arc<str>, revision: u64, at: Duration) {
        let mut state = self.lock();
        if let Some(old) = state.by_key.insert(Arc::clone(key), KeyDeadline { revision, at }) {
            state.by_time.remove(&(old.at, Arc::clone(key)));
        }
        state.by_time.insert((at, Arc::clone(key)));
        drop(state);
        self.added.notify_one();
    }

    /// The deadline of the record of `key` at `revision`.
    pub(crate) fn of(&self, key: &str, revision: u64) -> Option<Duration> {
        self.lock()
            .by_key
            .get(key)
            .filter(|deadline| deadline.revision == revision)
            .map(|deadline| deadline.at)
    }

    /// Some of the records that have expired, with their revisions.
    fn expired(&self) -> Vec<(Arc<str>, u64)> {
        let now = self.now();
        let state = self.lock();
        let expired = state.by_time.iter().take_while(|(at, _)| *at <= now).take(DELETED_TOGETHER);
        expired.filter_map(|(_, key)| Some((Arc::clone(key), state.by_key.get(key)?.revision))).collect()
    }

    /// Removes the deadline of the record of `key` at `revision`.
    fn remove(&self, key: &Arc<str>, revision: u64) {
        let mut state = self.lock();
        if let Some(deadline) =
            state.by_key.get(key).copied().filter(|deadline| deadline.revision == revision)
        {
            state.by_key.remove(key);
            state.by_time.remove(&(deadline.at, Arc::clone(key)));
        }
    }

    /// Waits until a deadline may have passed.
    async fn wait(&self) {
        let next = self.lock().by_time.first().map(|(at, _)| *at);
        match next {
            None => self.added.notified().await,
            Some(at) => {
                let sleep = at.saturating_sub(self.now()).min(MAX_SLEEP);
                let _ = tokio::time::timeout(sleep, self.added.notified()).await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeadlineIndex> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that deletes expired keys; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Sweeper(AbortHandle);

impl Sweeper {
    pub(crate) fn start(set: &Arc<WorkingSet>, backend: &Arc<dyn Backend>) -> Sweeper {
        Sweeper(tokio::spawn(sweep(Arc::clone(set), Arc::downgrade(backend))).abort_handle())
    }

    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn sweep(set: Arc<WorkingSet>, backend: Weak<dyn Backend>) {
    loop {
        let expired = set.deadlines.expired();
        if expired.is_empty() {
            set.deadlines.wait().await;
            continue;
        }
        let mut deletions = JoinSet::new();
        for (key, revision) in expired {
            let Some(backend) = backend.upgrade() else { return };
            deletions.spawn(async move {
                // Fails if the key has been written since: then the new record decides.
                let expect = Expect::Revision(revision);
                let (change, priority) = (Change::Delete, WritePriority::System);
                let deleted = backend
                    .commit(Write { key: Arc::clone(&key), expect, change, priority, ttl: None })
                    .await;
                (key, revision, deleted)
            });
        }
        let mut failure = None;
        while let Some(Ok((key, revision, deleted))) = deletions.join_next().await {
            match deleted {
                Ok(_) => set.deadlines.remove(&key, revision),
                Err(
                    CommitFailure::NotStored(reason)
                    | CommitFailure::Unknown(reason)
                    | CommitFailure::TimedOut(reason),
                ) => {
                    failure = Some(reason);
                }
            }
        }
        if let Some(reason) = failure {
            tracing::warn!(error = %reason, retry_in = ?RETRY, "cannot delete expired keys; retrying");
            tokio::time::sleep(RETRY).await;
        }
    }
}
