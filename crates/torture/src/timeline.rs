//! The states of etcd at every revision, and the revisions that a request can have seen.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use serde_json::Value;

use crate::history::{EtcdChange, Outcome, RunHistory, WatchMessage, write_of};

/// A state of one key: from its revision until the next change.
#[derive(Clone, Copy, Debug)]
pub struct StoredState<'h> {
    /// The revision of the change; 0 before the first one.
    pub revision: u64,
    /// `None` if the key does not exist.
    pub object: Option<&'h Value>,
}

#[derive(Debug)]
pub struct Timeline<'h> {
    keys: BTreeMap<&'h str, Vec<&'h EtcdChange>>,
    pub last_revision: u64,
}

impl<'h> Timeline<'h> {
    pub fn new(changes: &'h [EtcdChange]) -> Self {
        let mut keys: BTreeMap<&str, Vec<&EtcdChange>> = BTreeMap::new();
        for change in changes {
            keys.entry(change.key.as_str()).or_default().push(change);
        }
        Timeline { keys, last_revision: changes.last().map_or(0, |change| change.revision) }
    }

    /// The changes of a key, in order.
    pub fn changes(&self, key: &str) -> &[&'h EtcdChange] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// The change of a key at exactly this revision.
    pub fn change_at(&self, key: &str, revision: u64) -> Option<&'h EtcdChange> {
        let changes = self.changes(key);
        let index = changes.binary_search_by_key(&revision, |change| change.revision).ok()?;
        changes.get(index).copied()
    }

    pub fn state(&self, key: &str, revision: u64) -> StoredState<'h> {
        state_of(self.changes(key), revision)
    }

    /// The states of a key that existed at some revision from `low` to `high`, the oldest first.
    pub fn states_between(&self, key: &str, low: u64, high: u64) -> Vec<StoredState<'h>> {
        let first = self.state(key, low);
        let within =
            self.changes(key).iter().filter(|change| low < change.revision && change.revision <= high);
        let later =
            within.map(|change| StoredState { revision: change.revision, object: change.object.as_ref() });
        if low > high { Vec::new() } else { std::iter::once(first).chain(later).collect() }
    }

    /// The revision up to which a state that began at `revision` lasted.
    pub fn lasted_until(&self, key: &str, revision: u64) -> u64 {
        let next = self.changes(key).iter().find(|change| change.revision > revision);
        next.map_or(u64::MAX, |change| change.revision - 1)
    }

    /// The existing keys below `prefix` at a revision.
    pub fn snapshot(&self, prefix: &str, revision: u64) -> BTreeMap<&'h str, StoredState<'h>> {
        self.below(prefix)
            .map(|(key, changes)| (key, state_of(changes, revision)))
            .filter(|(_, state)| state.object.is_some())
            .collect()
    }

    /// The first change below `prefix` after a revision.
    pub fn next_below(&self, prefix: &str, revision: u64) -> Option<&'h EtcdChange> {
        let next = |(_, changes): (&str, &[&'h EtcdChange])| {
            changes.get(changes.partition_point(|change| change.revision <= revision)).copied()
        };
        self.below(prefix).filter_map(next).min_by_key(|change| change.revision)
    }

    fn below<'t>(&'t self, prefix: &'t str) -> impl Iterator<Item = (&'h str, &'t [&'h EtcdChange])> + 't {
        let from = self.keys.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(key, changes)| (*key, changes.as_slice()))
    }
}

fn state_of<'h>(changes: &[&'h EtcdChange], revision: u64) -> StoredState<'h> {
    let after = changes.partition_point(|change| change.revision <= revision);
    match after.checked_sub(1).and_then(|index| changes.get(index)) {
        Some(change) => StoredState { revision: change.revision, object: change.object.as_ref() },
        None => StoredState { revision: 0, object: None },
    }
}

/// The revisions that a linearizable request can have seen, from real time.
#[derive(Debug)]
pub struct Bounds {
    /// When an answer arrived, and the highest revision in any answer until then.
    observed: Vec<(u64, u64)>,
    /// Revisions of the workload's writes, and the latest start of a write with that revision or a lower one.
    requested: Vec<(u64, u64)>,
    last_revision: u64,
}

impl Bounds {
    pub fn new(history: &RunHistory) -> Self {
        let mut observed: Vec<(u64, u64)> = Vec::new();
        for operation in &history.operations {
            let revision = match &operation.outcome {
                Outcome::Stored(seen) | Outcome::Object(Some(seen)) => seen.revision,
                Outcome::Listed { revision, .. } => *revision,
                _ => continue,
            };
            observed.push((operation.end, revision));
        }
        let messages = history.streams.iter().flat_map(|stream| &stream.messages);
        observed.extend(messages.filter_map(|message| match message {
            WatchMessage::Event { at, seen, .. } => Some((*at, seen.revision)),
            WatchMessage::Bookmark { .. } => None,
        }));
        observed.sort_unstable();
        running_maximum(&mut observed);

        let starts: HashMap<u64, u64> = history
            .operations
            .iter()
            .filter_map(|operation| Some((operation.request.write()?, operation.start)))
            .collect();
        let mut requested: Vec<(u64, u64)> = history
            .changes
            .iter()
            .filter_map(|change| {
                let write = change.object.as_ref().and_then(write_of)?;
                Some((change.revision, *starts.get(&write)?))
            })
            .collect();
        running_maximum(&mut requested);
        let last_revision = history.changes.last().map_or(0, |change| change.revision);
        Bounds { observed, requested, last_revision }
    }

    /// The highest revision that any client had seen before `start`: a request that began then sees at least this one.
    pub fn lowest(&self, start: u64) -> u64 {
        let before = self.observed.partition_point(|(end, _)| *end < start);
        before.checked_sub(1).and_then(|index| self.observed.get(index)).map_or(0, |(_, revision)| *revision)
    }

    /// The highest revision that an answer at `end` can have seen: the next one was requested later.
    pub fn highest(&self, end: u64) -> u64 {
        let until = self.requested.partition_point(|(_, start)| *start <= end);
        self.requested.get(until).map_or(self.last_revision, |(revision, _)| revision - 1)
    }
}

/// Replaces every second number by the maximum up to it.
fn running_maximum(pairs: &mut [(u64, u64)]) {
    let mut maximum = 0;
    for (_, second) in pairs {
        maximum = maximum.max(*second);
        *second = maximum;
    }
}
