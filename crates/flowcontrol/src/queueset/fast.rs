//! The queue set's side of the fast path: opens and closes it, and adds its use to the statistics.

use std::sync::Arc;
use std::time::Duration;

use super::{QueueSet, Queuing, RequestTicket};
use crate::fast_path::{FastCounters, FastPath};
use crate::statistics::{BusyTime, nanos};

/// Tracks how much of the fast path's use the statistics include.
#[derive(Debug, Default)]
pub(super) struct FastUse {
    /// The value of [`FastPath::nanoseconds`] at the last update.
    seen: u64,
    /// Time of the last update.
    at: Duration,
    /// Nanoseconds that the gauges do not include yet: long requests are counted when they leave.
    pending: u64,
    /// Nanoseconds since [`QueueSet::take_fast_use`]; `most` is the maximum number of requests since then.
    nanoseconds: u64,
    most: u64,
}

impl FastUse {
    pub(super) fn since(now: Duration) -> Self {
        FastUse { at: now, ..FastUse::default() }
    }
}

impl<T: RequestTicket> QueueSet<T> {
    pub(crate) fn fast_path(&self) -> &Arc<FastPath> {
        &self.fast
    }

    /// The fast-path counters of a flow schema.
    pub(crate) fn fast_counters(&self, flow: usize) -> Arc<FastCounters> {
        self.flows.get(flow).map(|flow| Arc::clone(&flow.fast)).unwrap_or_default()
    }

    /// Updates the queues after a request has left the closed fast path.
    pub(crate) fn left_fast_path(&mut self, now: Duration) {
        self.sync(now);
        self.dispatch_all(now);
        self.open_fast_path();
        self.note_load(now);
    }

    /// Records a fast-path request that took longer than [`fast_path::SHORT`](crate::fast_path::SHORT).
    pub(crate) fn finished_on_fast_path(&mut self, flow: usize, took: Duration) {
        self.take_fast_counts();
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.finished_on_fast_path(took);
        }
    }

    /// Opens the fast path if no request waits and most seats are free.
    pub(super) fn open_fast_path(&mut self) {
        if self.fast.is_open() {
            return;
        }
        match self.queuing {
            Queuing::Exempt => self.fast.open_without_limit(),
            _ if self.waiting == 0 && self.seats_in_use <= self.limit / 4 => self.fast.open(self.limit),
            _ => {}
        }
    }

    /// Reports whether this many seats are free, closing the fast path if necessary.
    pub(super) fn make_room(&mut self, seats: u64) -> bool {
        if self.fits(seats) {
            return true;
        }
        self.fast.close();
        self.fits(seats)
    }

    /// Seats in use or reserved for the fast path.
    pub(super) fn occupied(&self) -> u64 {
        self.seats_in_use.saturating_add(self.fast.occupied())
    }

    /// Adds the use of the fast path to the gauges.
    pub(crate) fn note_fast_use(&mut self, now: Duration) {
        let seen = self.fast.nanoseconds();
        let busy = seen.wrapping_sub(std::mem::replace(&mut self.fast_use.seen, seen));
        let passed = nanos(now.saturating_sub(self.fast_use.at));
        self.fast_use.pending = self.fast_use.pending.saturating_add(busy);
        self.fast_use.at = now;
        if self.fast_use.pending == 0 || passed == 0 {
            return;
        }
        let most = self.fast.take_most();
        let nanoseconds = self.fast_use.pending.min(most.saturating_mul(passed));
        let fast = &mut self.fast_use;
        fast.pending -= nanoseconds;
        fast.nanoseconds = fast.nanoseconds.saturating_add(nanoseconds);
        fast.most = fast.most.max(most);
        let busy = BusyTime { nanoseconds, most };
        self.gauges.add_busy(now, &busy);
        self.demand.advance_with(now, &busy);
    }

    /// Total time in nanoseconds and maximum number of requests on the fast path since the last call.
    pub fn take_fast_use(&mut self, now: Duration) -> (u64, u64) {
        self.note_fast_use(now);
        (std::mem::take(&mut self.fast_use.nanoseconds), std::mem::take(&mut self.fast_use.most))
    }

    /// Adds the counts of the fast path to the counters.
    pub(crate) fn take_fast_counts(&mut self) {
        let waits = self.queuing != Queuing::Exempt;
        let started = self.flows.iter_mut().map(|flow| flow.take_fast(waits));
        self.counts.dispatched += started.sum::<u64>();
    }
}
