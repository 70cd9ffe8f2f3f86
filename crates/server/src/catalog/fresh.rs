//! Since when the objects of a definition are stored as its schema wants them.
//!
//! What a write stores was judged by the schema of the moment at which it began, and is stored a moment later. INVARIANT: nothing
//! counts as fresh while somebody may still write by a former schema: a writer says so first and looks at the catalog again then,
//! and the catalog is changed first and asked for writers then, so that one of the two sees the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Nothing is.
const NEVER: u64 = u64::MAX;

/// Of one schema: since when what is stored is as it wants it, and who is writing by it.
#[derive(Debug)]
pub struct Fresh {
    after: AtomicU64,
    writers: AtomicUsize,
    /// The schema before this one, as long as somebody may be writing by it.
    former: Mutex<Option<Arc<Fresh>>>,
}

impl Fresh {
    /// Of the schema by which everything is written after a revision.
    pub fn after(revision: u64) -> Arc<Self> {
        Arc::new(Fresh {
            after: AtomicU64::new(revision),
            writers: AtomicUsize::new(0),
            former: Mutex::default(),
        })
    }

    /// Of a schema that comes in the place of another: nothing is fresh until [`Fresh::settle`] says so.
    pub fn instead_of(former: Arc<Fresh>) -> Arc<Self> {
        Arc::new(Fresh {
            after: AtomicU64::new(NEVER),
            writers: AtomicUsize::new(0),
            former: Mutex::new(Some(former)),
        })
    }

    /// Whether what was written at a revision was written by this schema.
    pub fn has(&self, revision: u64) -> bool {
        revision > self.after.load(Ordering::SeqCst)
    }

    /// Says that somebody writes by this schema, until that is dropped.
    pub fn write(self: &Arc<Self>) -> Writing {
        self.writers.fetch_add(1, Ordering::SeqCst);
        Writing(Arc::clone(self))
    }

    /// Finds out since when objects are fresh, if nobody writes by a former schema any more. `revision` is what the store has come
    /// to. Says whether that is known now.
    pub fn settle(&self, revision: impl Fn() -> u64) -> bool {
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = former.as_ref() {
            if before.is_written_by() {
                return false;
            }
            self.after.store(revision(), Ordering::SeqCst);
            *former = None;
        }
        true
    }

    fn is_written_by(&self) -> bool {
        let former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        self.writers.load(Ordering::SeqCst) > 0
            || former.as_ref().is_some_and(|former| former.is_written_by())
    }
}

/// Somebody who writes by a schema.
#[derive(Debug)]
pub struct Writing(Arc<Fresh>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::Fresh;
    use std::sync::Arc;

    #[test]
    fn what_is_written_after_a_revision_is_fresh() {
        let fresh = Fresh::after(5);
        assert!(!fresh.has(5));
        assert!(fresh.has(6));
        assert!(fresh.settle(|| 9), "there is nothing to wait for");
        assert!(fresh.has(6));
    }

    #[test]
    fn nothing_is_fresh_while_somebody_writes_by_a_former_schema() {
        let first = Fresh::after(5);
        let writing = first.write();
        let second = Fresh::instead_of(Arc::clone(&first));
        let third = Fresh::instead_of(Arc::clone(&second));
        assert!(!second.settle(|| 6));
        assert!(!third.settle(|| 7));
        assert!(!third.has(8), "it may have been written by the first");
        drop(writing);
        assert!(third.settle(|| 9));
        assert!(!third.has(9));
        assert!(third.has(10));
    }

    #[test]
    fn who_writes_by_the_schema_as_it_is_keeps_nobody_waiting() {
        let first = Fresh::after(5);
        let second = Fresh::instead_of(Arc::clone(&first));
        let _writing = second.write();
        assert!(second.settle(|| 6));
        assert!(second.has(7));
    }
}
