//! Fair queuing of one priority level.
//!
//! A request that cannot run at once waits in one of its flow's queues. The queue whose oldest request would finish first, if all queues
//! with work shared the seats evenly, is served next. That hypothetical progress is the virtual time `R`: it advances by seat-seconds per
//! queue. A queue's `next_dispatch` is the value of `R` at which its next request would start. When a request is dispatched, its queue is
//! charged with the estimated work; the charge is corrected by the actual time when it finishes.

mod dispatch;
mod fast;
mod inspect;
mod queue;
mod request;
mod slab;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::SeatSeconds;
use crate::dealer::Dealer;
use crate::fast_path::FastPath;
use crate::flow_stats::{FlowStats, LevelGauges, RejectReason};
use crate::statistics::{Integrator, Period};
use fast::FastUse;
pub use inspect::{LevelLoad, QueueView};
use queue::{Queue, QueuesByIndex};
use request::Execution;
pub use request::{ArrivalDecision, Ended, RequestArrival, RequestTicket, TrackedRequest, Withdrawn};
pub use slab::RequestId;
use slab::Slab;

/// Assumed duration of the first phase of a request before it has run.
const ESTIMATED_SERVICE: Duration = Duration::from_millis(3);
/// Number of empty queues that are retained; others exist only while they have work.
const RETAINED_QUEUES: usize = 256;

/// Statistics of deleted flow schemas are retained while there are at most this many schemas.
const RETAINED_FLOWS: usize = 256;

/// The treatment of requests of a priority level that find no free seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// Requests run without a limit.
    Exempt,
    /// Requests that find no free seat are rejected at once.
    Reject,
    /// Requests that find no free seat wait in queues.
    Queue {
        /// Selects the queues of a flow.
        dealer: Dealer,
        /// Number of queues of the level.
        queues: u32,
        /// Maximum number of waiting requests per queue.
        length_limit: u32,
    },
}

/// The requests of one priority level.
#[derive(Debug)]
pub struct QueueSet<T> {
    queuing: Queuing,
    limit: u64,
    queues: QueuesByIndex,
    requests: Slab<TrackedRequest<T>>,
    /// The virtual time; `last_sync` is the real time at which it was updated.
    current_r: SeatSeconds,
    last_sync: Duration,
    /// Index of the queue that was served last.
    last_served: u32,
    /// Number of queues with waiting or executing requests.
    active_queues: u32,
    /// Seats in use by requests from queues.
    queue_seats_in_use: u64,
    waiting: usize,
    executing: usize,
    seats_in_use: u64,
    seats_waiting: u64,
    enqueues: u64,
    pub(crate) counts: RequestTotals,
    demand: Integrator,
    pub(crate) gauges: LevelGauges,
    flows: Vec<FlowStats>,
    fast: Arc<FastPath>,
    fast_use: FastUse,
}

/// Total numbers of requests of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests that started to execute.
    pub dispatched: u64,
    /// Requests that were rejected, for any reason.
    pub rejected: u64,
    /// Always zero: kube-apiserver has this column but counts no requests in it.
    pub timed_out: u64,
    /// Requests that left their queue because of a timeout or a disconnected client.
    pub canceled: u64,
}

impl<T: RequestTicket> QueueSet<T> {
    /// A queue set without seats; [`QueueSet::configure`] sets their number.
    pub fn new(queuing: Queuing, now: Duration) -> Self {
        QueueSet {
            queuing,
            limit: 0,
            queues: QueuesByIndex::default(),
            requests: Slab::default(),
            current_r: SeatSeconds::ZERO,
            last_sync: now,
            last_served: 0,
            active_queues: 0,
            queue_seats_in_use: 0,
            waiting: 0,
            executing: 0,
            seats_in_use: 0,
            seats_waiting: 0,
            enqueues: 0,
            counts: RequestTotals::default(),
            demand: Integrator::new(now),
            gauges: LevelGauges::new(now),
            flows: Vec::new(),
            fast: Arc::default(),
            fast_use: FastUse::since(now),
        }
    }

    /// Changes the queuing and the number of seats; `denominator` is the number to which utilization metrics relate. Current requests stay.
    pub fn configure(&mut self, now: Duration, queuing: Queuing, limit: u64, denominator: u64) {
        self.sync(now);
        self.queuing = queuing;
        self.limit = limit;
        let capacity = match queuing {
            Queuing::Queue { queues, length_limit, .. } => u64::from(queues) * u64::from(length_limit),
            _ => 1,
        };
        self.note_fast_use(now);
        self.gauges.set_denominators(now, capacity, denominator);
        self.fast.close();
        self.dispatch_all(now);
        self.open_fast_path();
        self.note_load(now);
    }

    /// Marks all flow schemas as removed; [`QueueSet::flow`] restores those that still exist.
    pub(crate) fn retire_flows(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.is_configured = false);
    }

    /// The index under which requests of a flow schema arrive here. Statistics of deleted schemas are retained unless there are very
    /// many.
    pub fn flow(&mut self, schema: &str) -> usize {
        let found = self.flows.iter().position(|flow| flow.schema == schema);
        if let Some(known) = found {
            if let Some(flow) = self.flows.get_mut(known) {
                flow.is_configured = true;
            }
            return known;
        }
        self.take_fast_counts();
        if self.flows.len() >= RETAINED_FLOWS
            && let Some(free) = self.flows.iter().position(FlowStats::is_forgettable)
            && let Some(flow) = self.flows.get_mut(free)
        {
            *flow = FlowStats::new(schema);
            return free;
        }
        self.flows.push(FlowStats::new(schema));
        self.flows.len() - 1
    }

    /// Admits, queues or rejects a request.
    pub fn start(&mut self, now: Duration, arrival: RequestArrival<T>) -> ArrivalDecision {
        self.sync(now);
        if !arrival.is_resumed
            && let Some(flow) = self.flows.get_mut(arrival.flow)
        {
            flow.estimated(&arrival.work, arrival.interested_watches);
        }
        let seats = arrival.work.max_seats();
        match self.queuing {
            Queuing::Exempt | Queuing::Reject => {
                if self.queuing == Queuing::Reject && !self.make_room(seats) {
                    return self.reject(arrival.flow, RejectReason::ConcurrencyLimit);
                }
                let mut request = self.request_of(now, None, arrival);
                request.started = Some(now);
                self.record_execution(&Execution::of(&request, now));
                let id = self.requests.insert(request);
                self.note_load(now);
                ArrivalDecision::Executing(id)
            }
            Queuing::Queue { dealer, length_limit, .. } => {
                let index = self.choose(dealer, arrival.hash);
                let length = self.queues.get(index).map_or(0, Queue::len);
                let has_room = self.make_room(seats);
                if self.occupied() >= self.limit && length >= length_limit as usize {
                    return self.reject(arrival.flow, RejectReason::QueueFull);
                }
                if self.waiting == 0 && self.occupied() < self.limit && has_room {
                    // No other request waits, so this one is next.
                    let id = self.execute_unqueued(now, index, arrival);
                    self.note_load(now);
                    return ArrivalDecision::Executing(id);
                }
                let id = self.insert(now, Some(index), arrival);
                self.enqueue(index, id);
                self.dispatch_all(now);
                self.note_load(now);
                match self.requests.get(id) {
                    Some(TrackedRequest { started: Some(_), .. }) => ArrivalDecision::Executing(id),
                    _ => ArrivalDecision::Waiting(id),
                }
            }
        }
    }

    /// Ends the execution of a request.
    pub fn finish(&mut self, now: Duration, id: RequestId) -> Ended {
        self.end(now, id, false).0
    }

    /// Gives up a request's seats for a while. It resumes with the returned arrival.
    pub fn suspend(&mut self, now: Duration, id: RequestId) -> (Ended, Option<RequestArrival<T>>) {
        let (ended, request) = self.end(now, id, true);
        let arrival = request.map(|request| RequestArrival {
            flow: request.flow,
            distinguisher: request.distinguisher,
            hash: request.hash,
            work: request.arrival_work,
            interested_watches: None,
            is_watch: request.is_watch,
            is_resumed: true,
            ticket: request.ticket,
        });
        (ended, arrival)
    }

    /// Removes a request whose caller is done with it, whether it waits or executes.
    pub fn leave(&mut self, now: Duration, id: RequestId) -> Ended {
        match self.withdraw(now, id) {
            Withdrawn::Executing => self.finish(now, id),
            Withdrawn::Removed | Withdrawn::Unknown => Ended { linger: None, is_idle: self.is_idle() },
        }
    }

    fn end(
        &mut self,
        now: Duration,
        id: RequestId,
        is_suspended: bool,
    ) -> (Ended, Option<TrackedRequest<T>>) {
        self.sync(now);
        let (mut linger, mut gone) = (None, None);
        if let Some(request) = self.requests.get_mut(id)
            && let Some(started) = request.started
            && !request.is_lingering
        {
            let took = now.saturating_sub(started);
            let (flow, queue, work, is_watch) = (request.flow, request.queue, request.work, request.is_watch);
            request.is_lingering = true;
            self.executing -= 1;
            if let Some(flow) = self.flows.get_mut(flow) {
                flow.finished((!is_suspended).then_some(took), is_watch);
            }
            if let Some(index) = queue {
                self.charge_actual_time(index, work, took);
            }
            if is_suspended || work.additional_latency.is_zero() {
                gone = self.give_back(id);
            } else {
                linger = Some(work.additional_latency);
            }
            self.dispatch_all(now);
            self.open_fast_path();
            self.note_load(now);
        }
        (Ended { linger, is_idle: self.is_idle() }, gone)
    }

    /// Frees the seats of a lingering request.
    pub fn release(&mut self, now: Duration, id: RequestId) {
        self.sync(now);
        if self.requests.get(id).is_some_and(|request| request.is_lingering) {
            self.give_back(id);
            self.dispatch_all(now);
            self.open_fast_path();
            self.note_load(now);
        }
    }

    /// Removes a waiting request that its caller has given up; an executing one is left alone.
    pub fn withdraw(&mut self, now: Duration, id: RequestId) -> Withdrawn {
        self.sync(now);
        let Some(request) = self.requests.get(id) else { return Withdrawn::Unknown };
        if request.started.is_some() {
            return Withdrawn::Executing;
        }
        let Some(request) = self.requests.remove(id) else { return Withdrawn::Unknown };
        let waited = now.saturating_sub(request.arrived);
        if let Some(index) = request.queue {
            self.unqueue(index, id, &request);
            self.bound_next_dispatch(index);
            self.forget_if_idle(index);
        }
        self.counts.rejected += 1;
        self.counts.canceled += 1;
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.left_queue(&request.work);
            flow.rejected(RejectReason::TimeOut);
            flow.waited(waited, true);
        }
        self.dispatch_all(now);
        self.note_load(now);
        Withdrawn::Removed
    }

    /// Ends a period of seat demand and begins the next.
    pub(crate) fn end_period(&mut self, now: Duration) -> Period {
        self.note_fast_use(now);
        self.demand.reset(now)
    }

    /// The data that the caller attached to a request.
    pub fn ticket_mut(&mut self, id: RequestId) -> Option<&mut T> {
        self.requests.get_mut(id).map(|request| &mut request.ticket)
    }

    /// Reports whether this many seats are free. A request that wants more than the limit waits until it is alone.
    fn fits(&self, seats: u64) -> bool {
        if seats > self.limit {
            self.executing == 0 && self.fast.occupied() == 0
        } else {
            self.occupied().saturating_add(seats) <= self.limit
        }
    }

    fn reject(&mut self, flow: usize, reason: RejectReason) -> ArrivalDecision {
        self.counts.rejected += 1;
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.rejected(reason);
            flow.waited(Duration::ZERO, false);
        }
        ArrivalDecision::Rejected(reason)
    }

    fn insert(&mut self, now: Duration, queue: Option<u32>, arrival: RequestArrival<T>) -> RequestId {
        let request = self.request_of(now, queue, arrival);
        self.requests.insert(request)
    }

    fn request_of(&self, now: Duration, queue: Option<u32>, arrival: RequestArrival<T>) -> TrackedRequest<T> {
        let RequestArrival { flow, distinguisher, hash, work, is_watch, is_resumed, ticket, .. } = arrival;
        let final_work = SeatSeconds::of(work.final_seats, work.additional_latency);
        TrackedRequest {
            flow,
            distinguisher,
            work,
            arrived: now,
            started: None,
            queue,
            ticket,
            hash,
            arrival_work: work,
            is_watch,
            is_resumed,
            is_lingering: false,
            arrived_at: self.current_r,
            total_work: SeatSeconds::of(work.initial_seats, ESTIMATED_SERVICE) + final_work,
            final_work,
        }
    }

    fn give_back(&mut self, id: RequestId) -> Option<TrackedRequest<T>> {
        let request = self.requests.remove(id)?;
        let seats = request.work.max_seats();
        self.seats_in_use -= seats;
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.gave_back(&request.work);
        }
        if let Some(index) = request.queue {
            self.queue_seats_in_use -= seats;
            if let Some(queue) = self.queues.get_mut(index) {
                queue.seats_in_use -= seats;
            }
            self.forget_if_idle(index);
        }
        Some(request)
    }

    fn note_load(&mut self, now: Duration) {
        self.note_fast_use(now);
        #[expect(clippy::cast_precision_loss, reason = "numbers of seats are small")]
        let demand = (self.seats_in_use + self.seats_waiting) as f64;
        self.demand.set(now, demand);
        self.gauges.set(now, self.load_without_fast_path());
    }
}
