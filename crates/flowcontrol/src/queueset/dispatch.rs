//! Fair dispatch: advances the virtual time, assigns requests to queues, and serves the queue whose oldest request would finish first.

use std::time::Duration;

use super::request::Execution;
use super::{
    ESTIMATED_SERVICE, QueueSet, Queuing, RETAINED_QUEUES, RequestArrival, RequestId, RequestTicket,
    TrackedRequest,
};
use crate::SeatSeconds;
use crate::dealer::Dealer;
use crate::estimate::WorkEstimate;

impl<T: RequestTicket> QueueSet<T> {
    /// Advances the virtual time to `now`. The state of the queues has not changed since the last call.
    pub(super) fn sync(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last_sync);
        if passed.is_zero() {
            return;
        }
        self.last_sync = now;
        if self.active_queues > 0 {
            let wanted = (self.queue_seats_in_use + self.seats_waiting).min(self.limit);
            self.current_r += SeatSeconds::share_of(wanted, self.active_queues, passed);
        }
    }

    /// The queue of the flow's hand with the least waiting work.
    pub(super) fn choose(&mut self, dealer: Dealer, hash: u64) -> u32 {
        if self.waiting == 0 {
            // No request waits anywhere, so any queue of the hand will do.
            let first = self.next_offset(dealer.hand_size());
            return dealer.card(hash, first);
        }
        let hand = dealer.deal(hash);
        let cards = hand.cards();
        // Start at a different card each time, to separate flows with overlapping hands.
        let offset = self.next_offset(cards.len());
        let (before, from) = cards.split_at_checked(offset).unwrap_or_default();
        let waiting =
            |index: &u32| self.queues.get(*index).map_or(SeatSeconds::ZERO, |queue| queue.waiting_work);
        from.iter().chain(before).copied().min_by_key(waiting).unwrap_or_default()
    }

    /// The index at which to start among `count` queues; different each time.
    fn next_offset(&mut self, count: usize) -> usize {
        self.enqueues = self.enqueues.wrapping_add(1);
        usize::try_from(self.enqueues % count.max(1) as u64).unwrap_or_default()
    }

    /// Executes a request that no other precedes, as if it were enqueued and dispatched at once.
    pub(super) fn execute_unqueued(
        &mut self,
        now: Duration,
        index: u32,
        arrival: RequestArrival<T>,
    ) -> RequestId {
        let mut request = self.request_of(now, Some(index), arrival);
        let queue = self.queues.get_or_add(index);
        queue.activate(&mut self.active_queues, self.current_r);
        queue.next_dispatch = queue.next_dispatch.max(request.arrived_at);
        self.gauges.dispatch.note_only(self.current_r, queue.next_dispatch, queue.discounted_dispatch());
        queue.executing += 1;
        request.fit_to(self.limit);
        request.started = Some(now);
        let execution = Execution::of(&request, now);
        queue.begin(execution.seats, request.total_work);
        self.queue_seats_in_use += execution.seats;
        self.last_served = index;
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.passed_queue();
        }
        self.record_execution(&execution);
        self.requests.insert(request)
    }

    pub(super) fn enqueue(&mut self, index: u32, id: RequestId) {
        let Some(request) = self.requests.get(id) else { return };
        let queue = self.queues.get_or_add(index);
        queue.activate(&mut self.active_queues, self.current_r);
        queue.push(id, request.total_work, &request.work);
        let length = queue.len();
        self.waiting += 1;
        self.seats_waiting += request.work.max_seats();
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.entered_queue(&request.work, length);
        }
        self.bound_next_dispatch(index);
    }

    /// Removes a request from its queue; the caller updates the statistics of the flow schema.
    pub(super) fn unqueue(&mut self, index: u32, id: RequestId, request: &TrackedRequest<T>) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        if queue.remove(id, request.total_work, &request.work) {
            self.waiting -= 1;
            self.seats_waiting -= request.work.max_seats();
            if queue.is_idle() {
                self.active_queues -= 1;
            }
        }
    }

    /// Prevents a virtual start before the request's arrival: otherwise a queue could accumulate its unused share.
    pub(super) fn bound_next_dispatch(&mut self, index: u32) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        if let Some(oldest) = queue.oldest().and_then(|id| self.requests.get(id)) {
            queue.next_dispatch = queue.next_dispatch.max(oldest.arrived_at);
        }
    }

    pub(super) fn dispatch_all(&mut self, now: Duration) {
        while self.waiting > 0 && self.occupied() < self.limit {
            let Some((index, id)) = self.next() else { return };
            let Some(request) = self.requests.get(id) else { return };
            if !self.fits(request.work.max_seats()) {
                if let Some(flow) = self.flows.get_mut(request.flow) {
                    flow.no_accommodation += 1;
                }
                return;
            }
            self.dispatch(now, index, id);
            if let Some(request) = self.requests.get_mut(id) {
                request.ticket.dispatched();
            }
        }
    }

    /// The queue whose oldest request would finish first; ties go to the first one after the queue that was served last.
    fn next(&self) -> Option<(u32, RequestId)> {
        let mut best: Option<(SeatSeconds, u32, RequestId)> = None;
        for (index, queue) in self.queues.iter_after(self.last_served) {
            let Some(id) = queue.oldest() else { continue };
            let Some(request) = self.requests.get(id) else { continue };
            let finish = queue.next_dispatch + request.total_work;
            if best.is_none_or(|(earliest, ..)| finish < earliest) {
                best = Some((finish, index, id));
            }
        }
        best.map(|(_, index, id)| (index, id))
    }

    /// Removes the oldest request from its queue and lets it execute.
    fn dispatch(&mut self, now: Duration, index: u32, id: RequestId) {
        self.note_bounds(index);
        let Some(request) = self.requests.get_mut(id) else { return };
        let waited_with = request.work;
        let total_work = request.total_work;
        let flow = request.flow;
        request.fit_to(self.limit);
        request.started = Some(now);
        let execution = Execution::of(request, now);
        if let Some(queue) = self.queues.get_mut(index) {
            queue.dispatch(id, total_work, &waited_with);
            queue.begin(execution.seats, total_work);
        }
        self.waiting -= 1;
        self.seats_waiting -= waited_with.max_seats();
        self.queue_seats_in_use += execution.seats;
        self.last_served = index;
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.left_queue(&waited_with);
        }
        self.record_execution(&execution);
        self.bound_next_dispatch(index);
    }

    /// Records a request that starts to execute.
    pub(super) fn record_execution(&mut self, execution: &Execution) {
        let Execution { flow, seats, waited, is_new } = *execution;
        self.executing += 1;
        self.seats_in_use += seats;
        self.counts.dispatched += u64::from(is_new);
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.started(seats, is_new);
            if self.queuing != Queuing::Exempt && (is_new || !waited.is_zero()) {
                flow.waited(waited, true);
            }
        }
    }

    /// Charges a queue for the actual time of a request.
    pub(super) fn charge_actual_time(&mut self, index: u32, work: WorkEstimate, took: Duration) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        queue.executing -= 1;
        let initial = work.initial_seats;
        queue.next_dispatch -= SeatSeconds::of(initial, ESTIMATED_SERVICE);
        queue.next_dispatch += SeatSeconds::of(initial, took);
        if queue.is_idle() {
            self.active_queues -= 1;
        }
        self.bound_next_dispatch(index);
    }

    /// Removes an idle queue if there are many, or if its index is above the configured number.
    pub(super) fn forget_if_idle(&mut self, index: u32) {
        let wanted = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            _ => 0,
        };
        if (self.queues.len() > RETAINED_QUEUES || index >= wanted)
            && self.queues.get(index).is_some_and(|queue| queue.is_idle() && queue.seats_in_use == 0)
        {
            self.queues.remove(index);
        }
    }

    /// Records, for metrics, the range of virtual start times of waiting requests at a dispatch.
    fn note_bounds(&mut self, index: u32) {
        let starts: Vec<(SeatSeconds, SeatSeconds)> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.oldest().is_some())
            .map(|(_, queue)| (queue.next_dispatch, queue.discounted_dispatch()))
            .collect();
        let latest = self.queues.get(index).map(|queue| queue.next_dispatch).unwrap_or_default();
        self.gauges.dispatch.note(self.current_r, latest, &starts);
    }
}
