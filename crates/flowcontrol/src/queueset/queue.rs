//! One queue of a queue set.

use std::collections::VecDeque;
use std::time::Duration;

use super::slab::RequestId;
use crate::SeatSeconds;
use crate::estimate::Work;

/// Requests that wait, oldest first, and what executes of those that did.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<RequestId>,
    /// The virtual time at which its next request is dispatched. Meaningless while the queue is idle.
    pub(super) next_dispatch: SeatSeconds,
    pub(super) executing: usize,
    pub(super) seats_in_use: u64,
    pub(super) initial_seats: u64,
    pub(super) max_seats: u64,
    pub(super) waiting_work: SeatSeconds,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits or executes; seats may still be in use by requests that linger.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }

    pub(super) fn oldest(&self) -> Option<RequestId> {
        self.waiting.front().copied()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().copied()
    }

    pub(super) fn push(&mut self, id: RequestId, total_work: SeatSeconds, work: &Work) {
        self.waiting.push_back(id);
        self.initial_seats += work.initial_seats;
        self.max_seats += work.max_seats();
        self.waiting_work += total_work;
    }

    /// Takes a request out; `false` if it is not here.
    pub(super) fn remove(&mut self, id: RequestId, total_work: SeatSeconds, work: &Work) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| *waiting == id) else { return false };
        self.waiting.remove(at);
        self.initial_seats -= work.initial_seats;
        self.max_seats -= work.max_seats();
        self.waiting_work -= total_work;
        true
    }

    pub(super) fn dispatch(&mut self, id: RequestId, total_work: SeatSeconds, work: &Work) {
        if self.remove(id, total_work, work) {
            self.executing += 1;
        }
    }

    /// What the executing requests are assumed to cost.
    pub(super) fn work_in_progress(&self, service: Duration) -> SeatSeconds {
        SeatSeconds::of(self.seats_in_use, service)
    }
}
