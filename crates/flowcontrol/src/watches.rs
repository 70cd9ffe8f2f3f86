//! Counts the watches that will receive the event of a write.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use value::Str;

/// The scope of a watch. Selectors are left out, because they are evaluated for every event anyway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchIdentifier {
    /// Empty for the core group.
    pub group: Str,
    pub resource: Str,
    /// Empty for all namespaces.
    pub namespace: Str,
    /// Empty for all names.
    pub name: Str,
}

/// Counts the open watches by scope.
#[derive(Debug, Default)]
pub struct WatchTracker {
    counts: Mutex<HashMap<WatchIdentifier, usize>>,
}

impl WatchTracker {
    /// Adds a watch that starts.
    pub fn register(&self, scope: &WatchIdentifier) {
        *self.counts().entry(scope.clone()).or_default() += 1;
    }

    /// Removes a watch that ended.
    pub fn forget(&self, scope: &WatchIdentifier) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(scope) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(scope);
            }
        }
    }

    /// Number of watches interested in a write to this object; an object to be created may have no name yet.
    pub fn interested(&self, written: &WatchIdentifier) -> usize {
        let counts = self.counts();
        if counts.is_empty() {
            return 0;
        }
        let count = |scope: &WatchIdentifier| counts.get(scope).copied().unwrap_or_default();
        let mut scope =
            WatchIdentifier { namespace: Str::default(), name: Str::default(), ..written.clone() };
        let mut interested = count(&scope);
        if !written.namespace.is_empty() {
            scope.namespace = written.namespace.clone();
            interested += count(&scope);
        }
        if !written.name.is_empty() {
            scope.name = written.name.clone();
            interested += count(&scope);
        }
        interested
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, HashMap<WatchIdentifier, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(namespace: &str, name: &str) -> WatchIdentifier {
        WatchIdentifier {
            group: "".into(),
            resource: "pods".into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn a_write_interests_watches_of_everything_of_its_namespace_and_of_its_name() {
        let tracker = WatchTracker::default();
        for watched in [scope("", ""), scope("", ""), scope("a", ""), scope("a", "x"), scope("b", "")] {
            tracker.register(&watched);
        }
        assert_eq!(tracker.interested(&scope("a", "x")), 4);
        assert_eq!(tracker.interested(&scope("a", "")), 3, "what is created has no name yet");
        assert_eq!(tracker.interested(&scope("c", "y")), 2);
        let nodes = WatchIdentifier { resource: "nodes".into(), ..scope("", "n") };
        assert_eq!(tracker.interested(&nodes), 0);
        tracker.forget(&scope("", ""));
        tracker.forget(&scope("a", "x"));
        tracker.forget(&scope("a", "x"));
        assert_eq!(tracker.interested(&scope("a", "x")), 2);
    }
}
