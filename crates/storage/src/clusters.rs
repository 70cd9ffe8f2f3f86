//! Parts of the key space in other clusters (`--etcd-servers-overrides`).
//!
//! Each cluster has its own revisions, so each is a [`Store`] of its own, with its own working set and backend. A store that has such
//! overrides passes reads, writes and watches on by their key. Where a revision counts, [`Store::of`] selects the cluster.

use std::sync::Arc;

use crate::record::StoredEntry;
use crate::store::Store;
use crate::table::{ScopeTotals, StoredEntries};
use crate::watch::Watch;

/// A cluster that holds the keys below these prefixes.
#[derive(Debug)]
pub(crate) struct StoreOverride {
    /// Each ends with `/`.
    prefixes: Vec<String>,
    store: Store,
}

impl StoreOverride {
    fn has(&self, scope: &str) -> bool {
        self.prefixes.iter().any(|prefix| scope.starts_with(prefix.as_str()))
    }
}

/// The entries of one cluster in a scope, at its current revision.
pub(crate) struct ClusterPart<'s> {
    store: &'s Store,
    revision: u64,
    /// [`WorkingSet::reloads`](crate::working_set::WorkingSet::reloads) before the entries were read.
    reloads: u64,
    entries: StoredEntries,
}

/// The entries in a scope of every cluster that may have some.
pub(crate) struct ClusterParts<'s> {
    pub(crate) first: ClusterPart<'s>,
    pub(crate) others: Vec<ClusterPart<'s>>,
}

impl ClusterPart<'_> {
    /// Watches `scope` from here on.
    pub(crate) fn watch(&self, scope: &str) -> Watch {
        Watch::new(Arc::clone(&self.store.set), scope, self.revision, self.reloads)
    }
}

impl Store {
    /// Lets other stores hold the keys below some prefixes, each of which ends with `/`. Those of no two stores overlap, and this store
    /// has no such keys.
    #[must_use]
    pub fn with_overrides(mut self, overrides: Vec<(Vec<String>, Store)>) -> Store {
        let overrides = overrides.into_iter().map(|(prefixes, store)| StoreOverride { prefixes, store });
        self.overrides = overrides.collect();
        self
    }

    /// The store of the cluster that holds the keys in `scope`. Revisions of keys compare only within one cluster.
    pub fn of(&self, scope: &str) -> &Store {
        self.overrides.iter().find(|other| other.has(scope)).map_or(self, |other| &other.store)
    }

    /// This store and those of the other clusters, in the order of [`Store::with_overrides`].
    pub fn clusters(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(self).chain(self.overrides.iter().map(|other| &other.store))
    }

    pub(crate) fn parts<'s>(&'s self, scope: &str) -> ClusterParts<'s> {
        let select = |store: &'s Store| {
            let reloads = store.set.reloads();
            let (entries, revision) = store.set.select(scope, None);
            ClusterPart { store, revision, reloads, entries }
        };
        ClusterParts {
            first: select(self.of(scope)),
            others: self.others(scope).map(|other| select(&other.store)).collect(),
        }
    }

    /// The clusters besides [`Store::of`] that hold keys in `scope`.
    fn others<'s>(&'s self, scope: &str) -> impl Iterator<Item = &'s StoreOverride> {
        let others = if std::ptr::eq(self.of(scope), self) { &*self.overrides } else { &[] };
        others.iter().filter(move |other| other.prefixes.iter().any(|prefix| prefix.starts_with(scope)))
    }

    /// The totals of the entries that `scope` covers now, in all clusters. Takes the same time for any number of entries if `scope` is the
    /// directory of one shard ([`StoreOptions::shard_end`](crate::StoreOptions::shard_end)).
    pub fn totals(&self, scope: &str) -> ScopeTotals {
        let others = self.others(scope).map(|other| other.store.set.totals(scope));
        others.fold(self.of(scope).set.totals(scope), ScopeTotals::plus)
    }

    /// The entries in `scope` of all clusters, and the revision of the first one.
    pub(crate) fn select(&self, scope: &str) -> (StoredEntries, u64) {
        self.parts(scope).merge()
    }
}

impl ClusterParts<'_> {
    /// All entries in key order, and the revision of the first cluster.
    pub(crate) fn merge(self) -> (StoredEntries, u64) {
        let ClusterParts { first: ClusterPart { revision, entries, .. }, others } = self;
        if others.iter().all(|other| other.entries.is_empty()) {
            return (entries, revision);
        }
        let others = others.iter().flat_map(|other| other.entries.iter());
        let mut all: Vec<Arc<StoredEntry>> = entries.iter().chain(others).cloned().collect();
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        (StoredEntries::from_vec(all), revision)
    }
}
