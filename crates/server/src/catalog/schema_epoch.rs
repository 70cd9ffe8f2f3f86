//! Since when the objects of a CRD are stored as its schema wants them.
//!
//! What a write stores was judged by the schema of the moment at which it began, and is stored a moment later. INVARIANT: nothing
//! counts as fresh while somebody may still write by a former schema: a writer says so first and looks at the catalog again then,
//! and the catalog is changed first and asked for writers then, so that one of the two sees the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nothing is.
const NEVER: u64 = u64::MAX;

/// Of one schema: since when what is stored is as it wants it, and who is writing by it.
#[derive(Debug)]
pub struct SchemaEpoch {
    after: AtomicU64,
    writers: Arc<AtomicUsize>,
    /// Who writes by the schemas before this one; empty once nobody does.
    former: Mutex<Vec<Arc<AtomicUsize>>>,
}

impl SchemaEpoch {
    /// Of the schema by which everything is written after a revision.
    pub fn after(revision: u64) -> Arc<Self> {
        Arc::new(SchemaEpoch {
            after: AtomicU64::new(revision),
            writers: Arc::default(),
            former: Mutex::default(),
        })
    }

    /// Of a schema that comes in the place of another: nothing is fresh until [`SchemaEpoch::settle`] says so.
    ///
    /// Those before the other one are taken over as far as somebody writes by them, so that there are never more than writers,
    /// however often a CRD changes while one of them takes its time.
    pub fn instead_of(former: &SchemaEpoch) -> Arc<Self> {
        let mut all = former.former().clone();
        all.retain(some);
        all.push(Arc::clone(&former.writers));
        Arc::new(SchemaEpoch {
            after: AtomicU64::new(NEVER),
            writers: Arc::default(),
            former: Mutex::new(all),
        })
    }

    /// Whether what was written at a revision was written by this schema.
    pub fn has(&self, revision: u64) -> bool {
        revision > self.after.load(Ordering::SeqCst)
    }

    /// Says that somebody writes by this schema, until that is dropped.
    pub fn write(&self) -> SchemaWriter {
        self.writers.fetch_add(1, Ordering::SeqCst);
        SchemaWriter(Arc::clone(&self.writers))
    }

    /// Finds out since when objects are fresh, if nobody writes by a former schema any more. `revision` is what the store has come
    /// to. Says whether that is known now.
    pub fn settle(&self, revision: impl Fn() -> u64) -> bool {
        let mut former = self.former();
        if former.is_empty() {
            return true;
        }
        former.retain(some);
        if former.is_empty() {
            self.after.store(revision(), Ordering::SeqCst);
        }
        former.is_empty()
    }

    fn former(&self) -> MutexGuard<'_, Vec<Arc<AtomicUsize>>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether anybody is.
fn some(writers: &Arc<AtomicUsize>) -> bool {
    writers.load(Ordering::SeqCst) > 0
}

/// Somebody who writes by a schema.
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
    fn what_is_written_after_a_revision_is_fresh() {
        let epoch = SchemaEpoch::after(5);
        assert!(!epoch.has(5));
        assert!(epoch.has(6));
        assert!(epoch.settle(|| 9), "there is nothing to wait for");
        assert!(epoch.has(6));
    }

    #[test]
    fn nothing_is_fresh_while_somebody_writes_by_a_former_schema() {
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
    fn a_writer_that_takes_its_time_makes_no_chain_of_schemas() {
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
    fn who_writes_by_the_schema_as_it_is_keeps_nobody_waiting() {
        let first = SchemaEpoch::after(5);
        let second = SchemaEpoch::instead_of(&first);
        let _writing = second.write();
        assert!(second.settle(|| 6));
        assert!(second.has(7));
    }
}
