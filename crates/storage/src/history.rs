//! The most recent events, in revision order, limited by count and bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::StoreEvent;

#[derive(Debug)]
pub(crate) struct History {
    /// INVARIANT: revisions ascend, and every event after `forgotten` is present.
    events: VecDeque<Arc<StoreEvent>>,
    bytes: usize,
    max_events: usize,
    max_bytes: usize,
    forgotten: u64,
}

impl History {
    pub(crate) fn new(max_events: usize, max_bytes: usize) -> History {
        History { events: VecDeque::new(), bytes: 0, max_events, max_bytes, forgotten: 0 }
    }

    /// The revision up to which events have been discarded. A watch can begin at it, but not before it.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Adds the newest event; events that exceed the limits go to `dropped`, to be freed without holding a lock.
    pub(crate) fn push(&mut self, event: Arc<StoreEvent>, dropped: &mut Vec<Arc<StoreEvent>>) {
        self.bytes = self.bytes.saturating_add(event.cost());
        self.events.push_back(event);
        while self.events.len() > self.max_events || self.bytes > self.max_bytes {
            let Some(oldest) = self.events.pop_front() else { break };
            self.drop_event(oldest, dropped);
        }
    }

    /// Discards the events up to and including `revision`.
    pub(crate) fn forget(&mut self, revision: u64, dropped: &mut Vec<Arc<StoreEvent>>) {
        while self.events.front().is_some_and(|event| event.revision <= revision) {
            let Some(oldest) = self.events.pop_front() else { break };
            self.drop_event(oldest, dropped);
        }
        self.forgotten = self.forgotten.max(revision);
    }

    /// Discards all events, also those after `revision`: they did not lead to the state at that revision.
    pub(crate) fn reset(&mut self, revision: u64) -> VecDeque<Arc<StoreEvent>> {
        (self.bytes, self.forgotten) = (0, revision);
        std::mem::take(&mut self.events)
    }

    /// The events from `revision` on, oldest first.
    pub(crate) fn from(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<StoreEvent>> {
        let start = self.events.partition_point(|event| event.revision < revision);
        self.events.range(start..)
    }

    fn drop_event(&mut self, event: Arc<StoreEvent>, dropped: &mut Vec<Arc<StoreEvent>>) {
        self.bytes = self.bytes.saturating_sub(event.cost());
        self.forgotten = event.revision;
        dropped.push(event);
    }
}
