//! One queue of a queue set.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::ESTIMATED_SERVICE;
use super::slab::RequestId;
use crate::SeatSeconds;
use crate::estimate::WorkEstimate;

/// Waiting requests, oldest first, and totals of the requests dispatched from this queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<RequestId>,
    /// The virtual time at which its next request is dispatched. Undefined while the queue is idle.
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

    /// Makes an idle queue active, at the virtual time `now`; called before a request is added.
    pub(super) fn activate(&mut self, active_queues: &mut u32, now: SeatSeconds) {
        if self.is_idle() {
            *active_queues += 1;
            self.next_dispatch = now;
        }
    }

    /// Reports whether no request waits or executes; lingering requests may still use seats.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }

    pub(super) fn oldest(&self) -> Option<RequestId> {
        self.waiting.front().copied()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().copied()
    }

    pub(super) fn push(&mut self, id: RequestId, total_work: SeatSeconds, work: &WorkEstimate) {
        self.waiting.push_back(id);
        self.initial_seats += work.initial_seats;
        self.max_seats += work.max_seats();
        self.waiting_work += total_work;
    }

    /// Removes a request; `false` if it is not in this queue.
    pub(super) fn remove(&mut self, id: RequestId, total_work: SeatSeconds, work: &WorkEstimate) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| *waiting == id) else { return false };
        self.waiting.remove(at);
        self.initial_seats -= work.initial_seats;
        self.max_seats -= work.max_seats();
        self.waiting_work -= total_work;
        true
    }

    pub(super) fn dispatch(&mut self, id: RequestId, total_work: SeatSeconds, work: &WorkEstimate) {
        if self.remove(id, total_work, work) {
            self.executing += 1;
        }
    }

    /// Starts the execution of a request on `seats` seats and charges its estimated work.
    pub(super) fn begin(&mut self, seats: u64, total_work: SeatSeconds) {
        self.seats_in_use += seats;
        self.next_dispatch += total_work;
    }

    /// The virtual time of the next dispatch, less the estimated work of executing requests.
    pub(super) fn discounted_dispatch(&self) -> SeatSeconds {
        self.next_dispatch - SeatSeconds::of(self.seats_in_use, ESTIMATED_SERVICE)
    }
}

/// Queues with a lower index are found without a search. Realistic configurations have no others.
const NEAR: usize = 1024;

/// The queues of a queue set by index. An absent one has no requests and no seats.
#[derive(Debug, Default)]
pub(super) struct QueuesByIndex {
    near: Vec<Option<Queue>>,
    far: BTreeMap<u32, Queue>,
    len: usize,
}

impl QueuesByIndex {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, index: u32) -> Option<&Queue> {
        match self.near.get(index as usize) {
            Some(queue) => queue.as_ref(),
            None => self.far.get(&index),
        }
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Queue> {
        match self.near.get_mut(index as usize) {
            Some(queue) => queue.as_mut(),
            None => self.far.get_mut(&index),
        }
    }

    /// The queue with this index, added if absent.
    pub(super) fn get_or_add(&mut self, index: u32) -> &mut Queue {
        let position = index as usize;
        if position < NEAR && position >= self.near.len() {
            self.near.resize_with(position + 1, || None);
        }
        let len = &mut self.len;
        let new = || {
            *len += 1;
            Queue::default()
        };
        match self.near.get_mut(position) {
            Some(queue) => queue.get_or_insert_with(new),
            None => self.far.entry(index).or_insert_with(new),
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        let removed = match self.near.get_mut(index as usize) {
            Some(queue) => queue.take(),
            None => self.far.remove(&index),
        };
        self.len -= usize::from(removed.is_some());
    }

    /// All queues in index order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.iter_from(0).chain(self.far.iter().map(|(index, queue)| (*index, queue)))
    }

    fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &Queue)> {
        let near = self.near.get(first as usize..).unwrap_or_default();
        (first..).zip(near).filter_map(|(index, queue)| Some((index, queue.as_ref()?)))
    }

    /// All queues in index order, starting after `index` and wrapping around to it.
    pub(super) fn iter_after(&self, index: u32) -> impl Iterator<Item = (u32, &Queue)> {
        let far =
            |range: (Bound<u32>, Bound<u32>)| self.far.range(range).map(|(index, queue)| (*index, queue));
        let after =
            self.iter_from(index.saturating_add(1)).chain(far((Bound::Excluded(index), Bound::Unbounded)));
        let until = self
            .iter_from(0)
            .take_while(move |(other, _)| *other <= index)
            .chain(far((Bound::Unbounded, Bound::Included(index))));
        after.chain(until)
    }

    /// The highest index in use.
    pub(super) fn last(&self) -> Option<u32> {
        let near =
            || self.near.iter().rposition(Option::is_some).and_then(|position| u32::try_from(position).ok());
        self.far.last_key_value().map(|(index, _)| *index).or_else(near)
    }
}

#[cfg(test)]
mod tests {
    use super::QueuesByIndex;

    #[test]
    fn queues_are_visited_in_index_order_and_wrap_around() {
        let mut queues = QueuesByIndex::default();
        for index in [3, 5000, 1023, 0, 1024, 3] {
            queues.get_or_add(index).executing += 1;
        }
        queues.remove(0);
        queues.remove(1);
        assert_eq!(queues.len(), 4);
        assert_eq!(queues.get(3).unwrap().executing, 2);
        assert!(queues.get(0).is_none() && queues.get_mut(7000).is_none());
        let visited = |after: u32| queues.iter_after(after).map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!(visited(3), [1023, 1024, 5000, 3]);
        assert_eq!(visited(1024), [5000, 3, 1023, 1024]);
        assert_eq!(visited(4), [1023, 1024, 5000, 3]);
        assert_eq!(queues.iter().map(|(index, _)| index).collect::<Vec<_>>(), [3, 1023, 1024, 5000]);
        assert_eq!(queues.last(), Some(5000));
        queues.remove(5000);
        queues.remove(1024);
        assert_eq!(queues.last(), Some(1023));
    }
}
