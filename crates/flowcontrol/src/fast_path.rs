//! The fast path: read requests of one seat pass a priority level without its lock while no request has to wait.
//!
//! The queue set reserves a part of the level's seats for the fast path and counts them as occupied. When a queued request needs one of
//! them, the queue set closes the fast path under its lock, and from then on counts the requests that are still on it. A request that
//! leaves a closed fast path takes the lock and lets waiting requests use its seat. No request waits while the fast path is open, so
//! fair queuing has no decision to make then, and the level's limit is never exceeded.
//!
//! Seats and counters are sharded, so that threads do not share cache lines. INVARIANT: a request enters by counting itself and then
//! checking whether the fast path is open; the queue set closes it and then reads the counts. At least one of them sees the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::shard::{SHARDS, ShardIndex};
use crate::statistics::nanos;

/// Longer requests are counted under the lock of their level, each in its histogram bucket. Equals the bound of a bucket.
pub(crate) const SHORT: Duration = Duration::from_millis(5);

/// The seats of a priority level that are reserved for the fast path.
#[derive(Debug, Default)]
pub(crate) struct FastPath {
    /// Seats per shard; zero while the fast path is closed.
    seats: AtomicU64,
    /// All seats of the level.
    limit: AtomicU64,
    shards: [FastSeats; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct FastSeats {
    in_use: AtomicU64,
    /// The maximum in use since [`FastPath::take_most`].
    most: AtomicU64,
    /// Total time that finished requests used seats. Wraps around.
    nanoseconds: AtomicU64,
}

impl FastPath {
    /// Takes a seat if one is free. Fails while the server has more requests than the level has seats: the level is about to be contended,
    /// and its queues must see every flow.
    pub(crate) fn enter(&self, shard: ShardIndex, present: u64) -> bool {
        if self.seats.load(Ordering::Relaxed) == 0 || present > self.limit.load(Ordering::Relaxed) {
            return false;
        }
        let Some(mine) = self.shards.get(shard) else { return false };
        let in_use = mine.in_use.fetch_add(1, Ordering::SeqCst) + 1;
        if in_use > self.seats.load(Ordering::SeqCst) {
            mine.in_use.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        if in_use > mine.most.load(Ordering::Relaxed) {
            mine.most.store(in_use, Ordering::Relaxed);
        }
        true
    }

    /// Gives a seat back that was used for `took`. `true` if the fast path is closed, so that requests may be waiting for the seat.
    #[must_use]
    pub(crate) fn leave(&self, shard: ShardIndex, took: Duration) -> bool {
        if let Some(mine) = self.shards.get(shard) {
            mine.nanoseconds.fetch_add(nanos(took), Ordering::Relaxed);
            mine.in_use.fetch_sub(1, Ordering::SeqCst);
        }
        !self.is_open()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.seats.load(Ordering::SeqCst) > 0
    }

    /// Reserves half of `limit` seats; the fast path stays closed if that is less than one seat per shard.
    pub(crate) fn open(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.seats.store(limit / 2 / SHARDS as u64, Ordering::SeqCst);
    }

    /// Lets requests pass without a limit.
    pub(crate) fn open_without_limit(&self) {
        self.limit.store(u64::MAX, Ordering::Relaxed);
        self.seats.store(u64::MAX / 4 / SHARDS as u64, Ordering::SeqCst);
    }

    pub(crate) fn close(&self) {
        self.seats.store(0, Ordering::SeqCst);
    }

    /// The seats that the queues may not use: those in use and, while the fast path is open, those reserved.
    pub(crate) fn occupied(&self) -> u64 {
        let seats = self.seats.load(Ordering::SeqCst);
        let of = |shard: &FastSeats| shard.in_use.load(Ordering::SeqCst).max(seats);
        self.shards.iter().map(of).sum()
    }

    pub(crate) fn in_use(&self) -> u64 {
        self.shards.iter().map(|shard| shard.in_use.load(Ordering::SeqCst)).sum()
    }

    /// Total time in nanoseconds that seats were in use since the server started. Wraps around.
    pub(crate) fn nanoseconds(&self) -> u64 {
        let of = |shard: &FastSeats| shard.nanoseconds.load(Ordering::Relaxed);
        self.shards.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// The maximum number of seats in use since the last call. Shards are added up, so it may exceed the number in use at any one time.
    pub(crate) fn take_most(&self) -> u64 {
        let take = |shard: &FastSeats| {
            let in_use = shard.in_use.load(Ordering::Relaxed);
            shard.most.swap(in_use, Ordering::Relaxed).max(in_use)
        };
        self.shards.iter().map(take).sum()
    }
}

/// Counters of the requests of one flow schema on the fast path.
#[derive(Debug, Default)]
pub(crate) struct FastCounters {
    shards: [FastCounts; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct FastCounts {
    started: AtomicU64,
    finished: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Sums over all shards since the server started. They wrap around.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastSums {
    pub(crate) started: u64,
    /// Number of requests that took at most [`SHORT`]; `nanoseconds` is their total execution time.
    pub(crate) finished: u64,
    pub(crate) nanoseconds: u64,
}

impl FastSums {
    /// The difference to the sums in `earlier`.
    pub(crate) fn since(self, earlier: FastSums) -> FastSums {
        FastSums {
            started: self.started.wrapping_sub(earlier.started),
            finished: self.finished.wrapping_sub(earlier.finished),
            nanoseconds: self.nanoseconds.wrapping_sub(earlier.nanoseconds),
        }
    }
}

impl FastCounters {
    pub(crate) fn start(&self, shard: ShardIndex) {
        if let Some(counts) = self.shards.get(shard) {
            counts.started.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn finish(&self, shard: ShardIndex, took: Duration) {
        if let Some(counts) = self.shards.get(shard) {
            counts.nanoseconds.fetch_add(nanos(took), Ordering::Relaxed);
            counts.finished.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn sums(&self) -> FastSums {
        let mut sums = FastSums::default();
        for counts in &self.shards {
            // Read `finished` before `started`, so that a finished request is always counted as started.
            let finished = counts.finished.load(Ordering::Acquire);
            sums.finished = sums.finished.wrapping_add(finished);
            sums.nanoseconds = sums.nanoseconds.wrapping_add(counts.nanoseconds.load(Ordering::Relaxed));
        }
        for counts in &self.shards {
            sums.started = sums.started.wrapping_add(counts.started.load(Ordering::Acquire));
        }
        sums
    }
}

#[cfg(test)]
mod tests;
