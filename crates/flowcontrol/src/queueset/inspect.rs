//! Reads the state of a queue set, for metrics and the debug tables.

use super::{QueueSet, Queuing, RequestId, RequestTicket, TrackedRequest};
use crate::SeatSeconds;
use crate::flow_stats::FlowStats;

/// The current load of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelLoad {
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of executing requests.
    pub executing: usize,
    /// Seats in use, including those of lingering requests.
    pub seats_in_use: u64,
    /// Seats demanded by waiting requests.
    pub seats_waiting: u64,
}

/// The state of one queue, for the debug tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// The waiting requests, oldest first.
    pub waiting: Vec<RequestId>,
    /// Number of its executing requests.
    pub executing: usize,
    /// Seats that its requests occupy.
    pub seats_in_use: u64,
    /// The virtual time at which its next request starts.
    pub next_dispatch: SeatSeconds,
    /// Sum of the initial seats of the waiting requests.
    pub initial_seats_sum: u64,
    /// Sum of the maximum seats of the waiting requests.
    pub max_seats_sum: u64,
    /// Sum of the estimated work of the waiting requests.
    pub total_work_sum: SeatSeconds,
}

impl<T: RequestTicket> QueueSet<T> {
    /// Reports whether no request waits or executes.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0 && self.fast.in_use() == 0
    }

    /// The current load, including the fast path.
    pub fn load(&self) -> LevelLoad {
        let fast = self.fast.in_use();
        let load = self.load_without_fast_path();
        let executing = load.executing.saturating_add(usize::try_from(fast).unwrap_or(usize::MAX));
        LevelLoad { executing, seats_in_use: load.seats_in_use + fast, ..load }
    }

    pub(super) fn load_without_fast_path(&self) -> LevelLoad {
        LevelLoad {
            waiting: self.waiting,
            executing: self.executing,
            seats_in_use: self.seats_in_use,
            seats_waiting: self.seats_waiting,
        }
    }

    /// Maximum number of seats in use.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The virtual time at the last update.
    pub fn current_r(&self) -> SeatSeconds {
        self.current_r
    }

    /// Statistics by flow schema.
    pub fn flows(&self) -> &[FlowStats] {
        &self.flows
    }

    pub fn request(&self, id: RequestId) -> Option<&TrackedRequest<T>> {
        self.requests.get(id)
    }

    /// All requests that wait or occupy seats.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &TrackedRequest<T>)> {
        self.requests.iter()
    }

    /// Number of queues, including those with remaining requests above the configured number.
    pub fn queue_count(&self) -> u32 {
        let wanted = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            _ => 0,
        };
        wanted.max(self.queues.last().map_or(0, |last| last + 1))
    }

    /// The state of a queue for the debug tables; empty if it has no requests.
    pub fn queue(&self, index: u32) -> QueueView {
        let Some(queue) = self.queues.get(index) else { return QueueView::default() };
        QueueView {
            waiting: queue.ids().collect(),
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            next_dispatch: queue.next_dispatch,
            initial_seats_sum: queue.initial_seats,
            max_seats_sum: queue.max_seats,
            total_work_sum: queue.waiting_work,
        }
    }

    /// The queues with waiting requests, and the IDs of these.
    pub fn busy_queues(&self) -> impl Iterator<Item = (u32, Vec<RequestId>)> {
        self.queues
            .iter()
            .filter(|(_, queue)| queue.len() > 0)
            .map(|(index, queue)| (index, queue.ids().collect()))
    }

    /// Number of queues with waiting requests.
    pub fn queues_with_waiting(&self) -> usize {
        self.queues.iter().filter(|(_, queue)| queue.len() > 0).count()
    }
}
