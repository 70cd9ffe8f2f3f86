//! All live entries, the recent events, and their watchers: one consistent state in memory, like kube-apiserver's watch cache.
//!
//! One lock guards the state. Readers hold it while they copy a few references, the feeding backend while it moves
//! prepared entries into their tables.

mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::{DecidedChange, StoredRecord};
use crate::clock::Clock;
use crate::expiry::Deadlines;
use crate::history::History;
use crate::key::{self, Shards};
use crate::quota::SpaceQuota;
use crate::record::{StoreEvent, StoredEntry};
use crate::store::StoreOptions;
use crate::table::{EntryTable, ScopeTotals, StoredEntries};
use crate::watch::Watchers;

use self::state::{HistoryPoint, KeyShard, Prepared, WorkingState};

/// Number of changes applied while holding the lock.
const CHANGES_PER_LOCK: usize = 64;
/// Number of time steps into which the retention period is divided.
const RETENTION_STEPS: u32 = 16;

/// The revisions of a live key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRevisions {
    /// The revision of the last change.
    pub revision: u64,
    /// The revision of the creation; a key that is deleted and created again has a new one.
    pub created: u64,
    /// The bytes that the record takes of the quota.
    pub(crate) charge: u64,
}

#[derive(Debug)]
pub(crate) struct WorkingSet {
    state: RwLock<WorkingState>,
    pub(crate) watchers: Watchers,
    /// The revision up to which watchers have been notified.
    announced: watch::Sender<u64>,
    /// The revision to which the backend should compact next; zero if none.
    due: AtomicU64,
    /// Raised before and after the content is replaced: watches that began before end.
    reloads: AtomicU64,
    clock: Clock,
    retain_for: Duration,
    retain_revisions: u64,
    retain_bytes: u64,
    pub(crate) quota: Option<SpaceQuota>,
    pub(crate) deadlines: Deadlines,
}

pub(crate) enum ListAtRevision {
    Known(StoredEntries),
    /// The working set does not know; ask the backend.
    Unknown,
    /// The revision is compacted; this is the oldest one available.
    Compacted(u64),
    /// The revision does not exist yet; this is the current one.
    Future(u64),
}

impl WorkingSet {
    pub(crate) fn new(options: &StoreOptions) -> WorkingSet {
        let state = WorkingState {
            revision: 0,
            live_bytes: 0,
            division: Shards(options.shard_end),
            compacted: 0,
            loaded: 0,
            shards: BTreeMap::new(),
            history: History::new(options.history_events, options.history_bytes),
            written: 0,
            marks: VecDeque::new(),
        };
        let quota = options.quota.map(SpaceQuota::new);
        let retain_bytes = quota.as_ref().map_or(u64::MAX, SpaceQuota::history).min(options.retain_bytes);
        WorkingSet {
            state: RwLock::new(state),
            watchers: Watchers::default(),
            announced: watch::Sender::new(0),
            due: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            clock: options.clock.clone(),
            retain_for: options.retain_for,
            retain_revisions: options.retain_revisions,
            retain_bytes,
            quota,
            deadlines: Deadlines::new(options.wall_clock.clone()),
        }
    }

    pub(crate) fn load(&self, revision: u64, compacted: u64, records: Vec<StoredRecord>) {
        let mut entries: Vec<_> = records
            .into_iter()
            .map(|stored| {
                Arc::new(StoredEntry::new(stored.key, stored.revision, stored.created, &stored.record))
            })
            .collect();
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let live_bytes = entries.iter().map(|entry| entry.charge()).sum();
        let mut members: BTreeMap<Box<str>, Vec<Arc<StoredEntry>>> = BTreeMap::new();
        let division = self.read().division;
        for entry in entries {
            let name = division.of(&entry.key);
            match members.get_mut(name) {
                Some(members) => members.push(entry),
                None => drop(members.insert(name.into(), vec![entry])),
            }
        }
        let shard = |members| KeyShard { table: EntryTable::from_sorted(members), changed: revision };
        let shards = members.into_iter().map(|(name, members)| (name, shard(members))).collect();
        let mut state = self.write();
        state.revision = revision;
        state.compacted = compacted;
        state.loaded = revision;
        state.shards = shards;
        state.live_bytes = live_bytes;
        // The events that led to this state are unknown, except that an empty store was always empty.
        let dropped = state.history.reset(if revision <= 1 && self.reloads() == 0 { 0 } else { revision });
        let written = state.written;
        state.marks = VecDeque::from([HistoryPoint { time: (self.clock)(), revision, written }]);
        drop(state);
        drop(dropped);
        self.announced.send_replace(revision);
    }

    /// Replaces the content and ends all watches, also if the revision is the same or a lower one.
    pub(crate) fn reload(&self, revision: u64, records: Vec<StoredRecord>) {
        self.reloads.fetch_add(1, Ordering::AcqRel);
        self.load(revision, 0, records);
        self.reloads.fetch_add(1, Ordering::AcqRel);
        self.watchers.wake_all();
    }

    /// A number that is another one after the content was replaced.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    /// Live bytes, as the quota counts them.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.read().live_bytes
    }

    pub(crate) fn apply(&self, changes: Vec<DecidedChange>) -> AppliedChanges<'_> {
        let mut events = Vec::with_capacity(changes.len());
        let mut dropped = Vec::new();
        let mut changes = changes.into_iter().peekable();
        loop {
            // Building entries copies bodies, so it happens before the lock is taken.
            let mut prepared: Vec<_> = changes.by_ref().take(CHANGES_PER_LOCK).map(Prepared::new).collect();
            let Some(last) = prepared.last().map(Prepared::revision) else { break };
            // The changes of one revision, such as the deletions of an expired lease, become visible together.
            while let Some(change) = changes.next_if(|change| change.revision == last) {
                prepared.push(Prepared::new(change));
            }
            let mut state = self.write();
            for change in prepared {
                events.push(state.take(change, &mut dropped));
            }
        }
        self.retire(&mut dropped);
        if let Some(quota) = &self.quota {
            quota.settle(self.live_bytes());
        }
        AppliedChanges { set: self, events }
    }

    /// Raises the revision to `revision`, without a change.
    pub(crate) fn advance(&self, revision: u64) {
        let mut state = self.write();
        state.revision = state.revision.max(revision);
        drop(state);
        self.announce(revision);
    }

    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<StoredEntry>> {
        let state = self.read();
        state.shard(key)?.table.get(key).cloned()
    }

    pub(crate) fn revisions(&self, key: &str) -> Option<KeyRevisions> {
        let state = self.read();
        let entry = state.shard(key)?.table.get(key)?;
        Some(KeyRevisions { revision: entry.revision, created: entry.created, charge: entry.charge() })
    }

    /// The entries that `scope` covers now, and the current revision.
    pub(crate) fn select(&self, scope: &str, after: Option<&str>) -> (StoredEntries, u64) {
        let state = self.read();
        (state.select(scope, after), state.revision)
    }

    /// The totals of the entries that `scope` covers now. For the directory of a shard they are known; other scopes are walked.
    pub(crate) fn totals(&self, scope: &str) -> ScopeTotals {
        let state = self.read();
        if state.division.of(scope) == scope {
            return state.shard(scope).map(|shard| shard.table.totals()).unwrap_or_default();
        }
        let entries = state.select(scope, None);
        drop(state);
        ScopeTotals::of(&entries)
    }

    /// All entries, one part per shard, and the current revision.
    pub(crate) fn tables(&self) -> (Vec<StoredEntries>, u64) {
        let state = self.read();
        (state.shards.values().map(|shard| shard.table.select("/", None)).collect(), state.revision)
    }

    /// The entries that `scope` covered at `revision`.
    pub(crate) fn select_at(&self, scope: &str, revision: u64, after: Option<&str>) -> ListAtRevision {
        let state = self.read();
        if revision > state.revision {
            return ListAtRevision::Future(state.revision);
        }
        if revision < state.compacted {
            return ListAtRevision::Compacted(state.compacted);
        }
        if state.changed(scope) <= revision {
            return ListAtRevision::Known(state.select(scope, after));
        }
        if revision < state.history.forgotten() {
            return ListAtRevision::Unknown;
        }
        // Undo later changes: for each key, the oldest event after `revision` has its state at `revision`.
        let mut then = BTreeMap::new();
        for event in state.history.from(revision + 1).rev() {
            let key = &event.entry.key;
            if key::covers(scope, key) && after.is_none_or(|after| **key > *after) {
                then.insert(Arc::clone(key), event.previous.clone());
            }
        }
        let now = state.select(scope, after);
        drop(state);
        let mut entries = Vec::with_capacity(now.len());
        let mut then = then.into_iter().peekable();
        for entry in &now {
            while let Some((_, old)) = then.next_if(|(key, _)| *key < entry.key) {
                entries.extend(old);
            }
            match then.next_if(|(key, _)| *key == entry.key) {
                Some((_, old)) => entries.extend(old),
                None => entries.push(Arc::clone(entry)),
            }
        }
        entries.extend(then.filter_map(|(_, old)| old));
        ListAtRevision::Known(StoredEntries::from_vec(entries))
    }

    /// The event of a revision, if it is still in the history.
    pub(crate) fn event(&self, revision: u64) -> Option<Arc<StoreEvent>> {
        let state = self.read();
        let event = state.history.from(revision).next()?;
        (event.revision == revision).then(|| Arc::clone(event))
    }

    /// The oldest revision at which a watch can begin.
    pub(crate) fn oldest_event(&self) -> u64 {
        self.read().history.forgotten()
    }

    /// The oldest and the newest revision at which a watch can begin.
    pub(crate) fn span(&self) -> (u64, u64) {
        let state = self.read();
        (state.history.forgotten(), state.revision)
    }

    /// Collects events that `scope` covers from revision `from` on: at most `wanted` of them, examining at most `looked_at`
    /// events. Returns the revision up to which it has examined the history and whether that is the newest; `None` if events
    /// from `from` on have been discarded.
    pub(crate) fn collect(
        &self,
        scope: &str,
        from: u64,
        (wanted, looked_at): (usize, usize),
        found: &mut VecDeque<Arc<StoreEvent>>,
    ) -> Option<(u64, bool)> {
        let state = self.read();
        if from <= state.history.forgotten() {
            return None;
        }
        let mut until = from.saturating_sub(1);
        for (looked, event) in state.history.from(from).enumerate() {
            // One revision may have several events, such as the deletions of an expired lease: they are taken together.
            if (found.len() >= wanted || looked >= looked_at) && event.revision > until {
                return Some((until, false));
            }
            if key::covers(scope, &event.entry.key) {
                found.push_back(Arc::clone(event));
            }
            until = event.revision;
        }
        Some((until.max(state.revision), true))
    }

    /// Discards revisions before `revision`, but none that do not exist yet. Returns the compacted revision.
    pub(crate) fn compact(&self, revision: u64) -> u64 {
        let mut dropped = Vec::new();
        let mut state = self.write();
        let revision = revision.min(state.revision);
        state.compact(revision, &mut dropped);
        let compacted = state.compacted;
        drop(state);
        compacted
    }

    /// Takes the revision to which the backend should compact, if one is due.
    pub(crate) fn due(&self) -> Option<u64> {
        if self.due.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.due.swap(0, Ordering::Relaxed)).filter(|due| *due > 0)
    }

    /// Waits until `revision` has been applied and announced.
    pub(crate) async fn reached(&self, revision: u64) {
        let mut announced = self.announced.subscribe();
        // INVARIANT: the sender lives as long as `self`, so waiting cannot fail.
        let _ = announced.wait_for(|announced| *announced >= revision).await;
    }

    /// The revision up to which watchers have been notified.
    pub(crate) fn announced(&self) -> u64 {
        *self.announced.borrow()
    }

    fn announce(&self, revision: u64) {
        self.announced.send_if_modified(|announced| {
            let is_new = revision > *announced;
            *announced = revision.max(*announced);
            is_new
        });
    }

    /// Discards revisions that exceed the retention limits for time, bytes or count.
    fn retire(&self, dropped: &mut Vec<Arc<StoreEvent>>) {
        let now = (self.clock)();
        let mut state = self.write();
        let (revision, written) = (state.revision, state.written);
        let mut floor = state.compacted;
        let is_old = |mark: &HistoryPoint, time: Duration, bytes: u64| {
            now.saturating_sub(mark.time) >= time || written.saturating_sub(mark.written) >= bytes
        };
        while let Some(mark) =
            state.marks.pop_front_if(|mark| is_old(mark, self.retain_for, self.retain_bytes))
        {
            floor = floor.max(mark.revision);
        }
        let step = (self.retain_for / RETENTION_STEPS, self.retain_bytes / u64::from(RETENTION_STEPS));
        if state.marks.back().is_none_or(|mark| is_old(mark, step.0, step.1)) {
            state.marks.push_back(HistoryPoint { time: now, revision, written });
        }
        // By count it advances in steps, so that the backend is not asked at every write.
        let step = self.retain_revisions / u64::from(RETENTION_STEPS);
        let surplus = state.revision.saturating_sub(self.retain_revisions);
        if surplus > state.compacted.saturating_add(step) {
            floor = floor.max(surplus);
        }
        if floor > state.compacted {
            state.compact(floor, dropped);
            self.due.store(floor, Ordering::Relaxed);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, WorkingState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, WorkingState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes that reads already see. Dropping this notifies the watchers.
#[derive(Debug)]
#[must_use = "dropping it notifies the watchers, which must come after the writers have been answered"]
pub struct AppliedChanges<'s> {
    set: &'s WorkingSet,
    events: Vec<Option<Arc<StoreEvent>>>,
}

impl AppliedChanges<'_> {
    /// One event for each change; `None` for a deletion of a key that did not exist.
    pub fn events(&self) -> &[Option<Arc<StoreEvent>>] {
        &self.events
    }
}

impl Drop for AppliedChanges<'_> {
    fn drop(&mut self) {
        let last = self.events.iter().flatten().last().map(|event| event.revision);
        self.set.watchers.notify(self.events.iter().flatten());
        if let Some(last) = last {
            self.set.announce(last);
        }
    }
}

#[cfg(test)]
mod tests;
