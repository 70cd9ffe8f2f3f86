//! Compares the working set with the stored data of a shared backend, like kube-apiserver's cache consistency check.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::sync::Arc;

use crate::backend::{BackendFuture, KeyPage, Range};
use crate::error::ReadError;
use crate::store::Store;
use crate::table::StoredEntriesIter;

/// Keys that are read from the backend at a time.
const PAGE: usize = 10_000;

/// The result of [`Store::check_consistency`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsistencyCheck {
    /// The working set has the stored keys at their stored revisions.
    Consistent,
    Inconsistent(Inconsistency),
}

/// The first key, in key order, that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inconsistency {
    pub key: Arc<str>,
    /// The revision at which both were read.
    pub at: u64,
    /// The revision of the key in memory; `None` if it is not there.
    pub in_memory: Option<u64>,
    /// The revision of the key in the backend; `None` if it is not there.
    pub stored: Option<u64>,
}

impl Store {
    /// Compares the keys in `scope`, and the revisions of their last changes, with those that the backend has at the same revision.
    /// Values are not read. `None` for an exclusive backend.
    pub fn check_consistency<'s>(
        &'s self,
        scope: &'s str,
    ) -> BackendFuture<'s, Option<Result<ConsistencyCheck, ReadError>>> {
        Box::pin(self.compare(scope))
    }

    async fn compare(&self, scope: &str) -> Option<Result<ConsistencyCheck, ReadError>> {
        let cluster = self.of(scope);
        let (entries, revision) = cluster.set.select(scope, None);
        let mut in_memory = entries.iter().peekable();
        let mut after: Option<Arc<str>> = None;
        loop {
            let range = Range {
                scope: scope.to_owned(),
                revision,
                after: after.as_deref().map(ToOwned::to_owned),
                limit: PAGE,
            };
            let KeyPage { keys, more } = match cluster.backend.key_revisions(range)?.await {
                Ok(page) => page,
                Err(error) => return Some(Err(error)),
            };
            let difference = first_difference(&mut in_memory, &keys, more.as_deref());
            if let Some((key, in_memory, stored)) = difference {
                let found = Inconsistency { key, at: revision, in_memory, stored };
                return Some(Ok(ConsistencyCheck::Inconsistent(found)));
            }
            if more.is_none() {
                return Some(Ok(ConsistencyCheck::Consistent));
            }
            after = more;
        }
    }

    /// Lets the backend replace the working set of the keys in `scope` soon: with all other keys of that cluster, and ending all
    /// watches on them as lagged.
    pub fn reload(&self, scope: &str) {
        self.of(scope).backend.reload();
    }
}

/// Compares entries with a page of stored keys, of which the last one is `more` if others follow. Returns the first key that differs,
/// with its revision in memory and the stored one.
fn first_difference(
    in_memory: &mut Peekable<StoredEntriesIter<'_>>,
    stored: &[(Arc<str>, u64)],
    more: Option<&str>,
) -> Option<(Arc<str>, Option<u64>, Option<u64>)> {
    for (key, revision) in stored {
        match in_memory.peek().map(|entry| (entry.key.cmp(key), entry.revision)) {
            Some((Ordering::Equal, found)) if found == *revision => drop(in_memory.next()),
            Some((Ordering::Equal, found)) => return Some((Arc::clone(key), Some(found), Some(*revision))),
            Some((Ordering::Greater, _)) | None => return Some((Arc::clone(key), None, Some(*revision))),
            Some((Ordering::Less, _)) => break,
        }
    }
    let extra = in_memory.peek().filter(|entry| more.is_none_or(|more| *entry.key <= *more))?;
    Some((Arc::clone(&extra.key), Some(extra.revision), None))
}
