//! Tracks from which revision on the objects of a CRD are stored in the form of its current schema.
//!
//! A write validates its object against the schema that was current when it began, and commits later. INVARIANT: no object counts as
//! fresh while a write that began under a former schema may still commit. A writer registers first and then looks at the catalog again;
//! the catalog is changed first and then checked for writers, so that one of the two sees the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Value of `after` while no object counts as fresh.
const NEVER: u64 = u64::MAX;

/// For one schema: the revision after which all objects conform to it, and the number of its active writers.
#[derive(Debug)]
pub struct SchemaEpoch {
    after: AtomicU64,
    writers: Arc<AtomicUsize>,
    /// Writer counts of former schemas; empty once none of them has active writers.
    former: Mutex<Vec<Arc<AtomicUsize>>>,
}

impl SchemaEpoch {
    /// An epoch in which every object written after `revision` conforms to the schema.
    pub fn after(revision: u64) -> Arc<Self> {
        Arc::new(SchemaEpoch {
            after: AtomicU64::new(revision),
            writers: Arc::default(),
            former: Mutex::default(),
        })
    }

    /// An epoch in which no object counts as fresh: other servers write to the store, and they may still use a former schema.
    pub fn never() -> Arc<Self> {
        SchemaEpoch::after(NEVER)
    }

    /// The epoch of a schema that replaces another one: no object is fresh until [`SchemaEpoch::settle`] returns true.
    ///
    /// Of the schemas before `former`, only those that still have active writers are carried over. So their number is bounded by the number
    /// of writers, however often the CRD changes while one of them is slow.
    pub fn instead_of(former: &SchemaEpoch) -> Arc<Self> {
        let mut all = former.former().clone();
        all.retain(has_active_writers);
        all.push(Arc::clone(&former.writers));
        Arc::new(SchemaEpoch {
            after: AtomicU64::new(NEVER),
            writers: Arc::default(),
            former: Mutex::new(all),
        })
    }

    /// Reports whether an object written at `revision` conforms to this schema.
    pub fn has(&self, revision: u64) -> bool {
        revision > self.after.load(Ordering::SeqCst)
    }

    /// Registers a writer that uses this schema, until the guard is dropped.
    pub fn write(&self) -> SchemaWriter {
        self.writers.fetch_add(1, Ordering::SeqCst);
        SchemaWriter(Arc::clone(&self.writers))
    }

    /// Fixes the revision after which objects are fresh, once no former schema has active writers. `revision` returns the current revision
    /// of the store. Returns whether the revision is fixed.
    pub fn settle(&self, revision: impl Fn() -> u64) -> bool {
        let mut former = self.former();
        if former.is_empty() {
            return true;
        }
        former.retain(has_active_writers);
        if former.is_empty() {
            self.after.store(revision(), Ordering::SeqCst);
        }
        former.is_empty()
    }

    fn former(&self) -> MutexGuard<'_, Vec<Arc<AtomicUsize>>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether a schema has active writers.
fn has_active_writers(writers: &Arc<AtomicUsize>) -> bool {
    writers.load(Ordering::SeqCst) > 0
}

/// Guard that counts as one active writer of a schema.
#[derive(Debug)]
pub struct SchemaWriter(Arc<AtomicUsize>);

impl Drop for SchemaWriter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::SchemaEpoch;

    #[test]
    fn objects_of_a_shared_store_are_never_fresh() {
        let epoch = SchemaEpoch::never();
        assert!(epoch.settle(|| 9), "there is nothing to wait for");
        assert!(!epoch.has(1) && !epoch.has(u64::MAX));
    }

    #[test]
    fn writes_after_the_revision_conform() {
        let epoch = SchemaEpoch::after(5);
        assert!(!epoch.has(5));
        assert!(epoch.has(6));
        assert!(epoch.settle(|| 9), "there is nothing to wait for");
        assert!(epoch.has(6));
    }

    #[test]
    fn writes_do_not_conform_while_a_former_schema_has_writers() {
        let first = SchemaEpoch::after(5);
        let writing = first.write();
        let second = SchemaEpoch::instead_of(&first);
        let third = SchemaEpoch::instead_of(&second);
        assert!(!second.settle(|| 6));
        assert!(!third.settle(|| 7));
        assert!(!third.has(8), "it may have been written by the first");
        drop(writing);
        assert!(third.settle(|| 9));
        assert!(!third.has(9));
        assert!(third.has(10));
    }

    #[test]
    fn a_slow_writer_does_not_accumulate_former_schemas() {
        let first = SchemaEpoch::after(5);
        let writing = first.write();
        let mut last = first;
        for _ in 0..100_000 {
            last = SchemaEpoch::instead_of(&last);
        }
        assert!(last.former().len() <= 2);
        assert!(!last.settle(|| 6));
        drop(writing);
        assert!(last.settle(|| 7) && last.has(8) && !last.has(7));
    }

    #[test]
    fn writers_of_the_current_schema_do_not_delay_settling() {
        let first = SchemaEpoch::after(5);
        let second = SchemaEpoch::instead_of(&first);
        let _writing = second.write();
        assert!(second.settle(|| 6));
        assert!(second.has(7));
    }
}
