//! Sharding by thread, so that threads that only count or take references do not share cache lines.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of shards; threads whose numbers are equal modulo this share one.
pub(crate) const SHARDS: usize = 4;

pub(crate) type ShardIndex = usize;

/// The shard of the current thread.
pub(crate) fn shard() -> ShardIndex {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<Option<ShardIndex>> = const { Cell::new(None) };
    }
    MINE.with(|mine| {
        mine.get().unwrap_or_else(|| {
            let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
            mine.set(Some(shard));
            shard
        })
    })
}

/// One value per shard.
#[derive(Debug)]
pub struct PerShard<T>([T; SHARDS]);

impl<T> PerShard<T> {
    /// Calls `make` once per shard.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        PerShard(std::array::from_fn(|_| make()))
    }

    /// The value for the current thread.
    pub fn get(&self) -> &T {
        let [first, ..] = &self.0;
        self.0.get(shard()).unwrap_or(first)
    }
}

/// Counts the requests that the server has and has not answered yet.
#[derive(Debug)]
pub struct PresentRequests(PerShard<Arc<PresentShard>>);

/// Its references are the count. Aligned, so that the count of a shard has a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct PresentShard;

/// Guard that counts a request as present until it is dropped.
#[derive(Debug)]
pub struct PresentRequest(#[expect(dead_code, reason = "dropping it counts")] Arc<PresentShard>);

impl Default for PresentRequests {
    fn default() -> Self {
        PresentRequests(PerShard::new(|| Arc::new(PresentShard)))
    }
}

impl PresentRequests {
    /// Counts a request until the guard is dropped.
    pub fn arrive(&self) -> PresentRequest {
        PresentRequest(Arc::clone(self.0.get()))
    }

    /// The exact number of requests, which reads the cache lines of all threads.
    pub fn count(&self) -> u64 {
        let PresentRequests(PerShard(shards)) = self;
        shards.iter().map(of_shard).sum()
    }

    /// An estimate that reads only the cache line of the current thread. It takes the requests to be spread over two shards, which is the
    /// least that a server with more than one thread uses.
    pub fn estimate(&self) -> u64 {
        of_shard(self.0.get()).saturating_mul(2)
    }
}

fn of_shard(shard: &Arc<PresentShard>) -> u64 {
    // One reference is the counter's own.
    u64::try_from(Arc::strong_count(shard).saturating_sub(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn requests_are_present_until_their_guards_are_dropped_by_any_thread() {
        let present = Arc::new(PresentRequests::default());
        let here = present.arrive();
        let there = Arc::clone(&present);
        let other = thread::spawn(move || (there.arrive(), there.arrive())).join().unwrap();
        assert_eq!(present.count(), 3);
        assert!(present.estimate() >= 2, "the requests of this thread are counted twice");
        drop(other);
        assert_eq!(present.count(), 1);
        drop(here);
        assert_eq!((present.count(), present.estimate()), (0, 0));
    }

    #[test]
    fn a_thread_always_gets_the_value_of_its_shard() {
        let mut number = 0;
        let values = PerShard::new(|| {
            number += 1;
            number
        });
        assert_eq!(number, SHARDS);
        assert_eq!(values.get(), values.get());
    }
}
