//! Fair queuing of one priority level.
//!
//! A request that cannot run at once waits in one of its flow's queues. The queue whose oldest request would finish first, if all queues
//! with work shared the seats evenly, is served next. That hypothetical progress is the virtual time `R`: it advances by seat-seconds per
//! queue. A queue's `next_dispatch` is the value of `R` at which its next request would start. When a request is dispatched, its queue is
//! charged with the estimated work; the charge is corrected by the actual time when it finishes.

mod fast;
mod queue;
mod slab;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use value::Str;

use crate::SeatSeconds;
use crate::dealer::Dealer;
use crate::estimate::WorkEstimate;
use crate::fast_path::FastPath;
use crate::flow_stats::{FlowStats, LevelGauges, RejectReason};
use crate::statistics::{Integrator, Period};
use fast::FastUse;
use queue::{Queue, QueuesByIndex};
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
    /// They run, without a limit.
    Exempt,
    /// They are rejected at once.
    Reject,
    /// They wait in queues.
    Queue {
        /// Selects the queues of a flow.
        dealer: Dealer,
        /// Number of queues of the level.
        queues: u32,
        /// Maximum number of waiting requests per queue.
        length_limit: u32,
    },
}

/// Data that the caller attaches to a request.
pub trait RequestTicket {
    /// Called when a waiting request may run, with the queue set locked.
    fn dispatched(&mut self);
}

/// A request that asks for seats.
#[derive(Debug)]
pub struct Arrival<T> {
    /// Index of its flow schema in this level ([`QueueSet::flow`]).
    pub flow: usize,
    pub distinguisher: Str,
    /// Hash of its flow, which selects its queue.
    pub hash: u64,
    /// Its estimated cost in seats and time.
    pub work: WorkEstimate,
    /// Number of watches that will receive its event, if that was determined.
    pub interested_watches: Option<usize>,
    /// It is a watch, of which only the start uses seats.
    pub is_watch: bool,
    /// It executed before and was suspended ([`QueueSet::suspend`]): it is not counted again.
    pub is_resumed: bool,
    pub ticket: T,
}

/// The decision about an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalDecision {
    /// It may run; [`QueueSet::finish`] gives its seats back.
    Executing(RequestId),
    /// It waits until [`RequestTicket::dispatched`].
    Waiting(RequestId),
    /// It is rejected for this reason.
    Rejected(RejectReason),
}

/// The result of [`QueueSet::withdraw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// It was waiting and has been removed.
    Removed,
    /// It was already dispatched and is executing.
    Executing,
    /// There is no such request.
    Unknown,
}

/// The state after a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The caller must call [`QueueSet::release`] after this time: the request occupies its seats until then.
    pub linger: Option<Duration>,
    /// No request waits or executes any more.
    pub is_idle: bool,
}

/// A request that waits or occupies seats.
#[derive(Debug)]
pub struct TrackedRequest<T> {
    /// Index of its flow schema.
    pub flow: usize,
    pub distinguisher: Str,
    /// Its work; final seats are reduced to the limit when it is dispatched.
    pub work: WorkEstimate,
    /// Time at which it arrived.
    pub arrived: Duration,
    /// Time at which it started to execute; `None` while it waits.
    pub started: Option<Duration>,
    /// Index of its queue; `None` without queues.
    pub queue: Option<u32>,
    pub ticket: T,
    hash: u64,
    /// Its work as estimated on arrival.
    arrival_work: WorkEstimate,
    is_watch: bool,
    is_resumed: bool,
    is_lingering: bool,
    arrived_at: SeatSeconds,
    total_work: SeatSeconds,
    final_work: SeatSeconds,
}

impl<T> TrackedRequest<T> {
    /// Reports whether it executes; afterwards it may still occupy seats.
    pub fn is_executing(&self) -> bool {
        self.started.is_some() && !self.is_lingering
    }

    /// Reduces final seats to `limit`, for a longer time.
    fn fit_to(&mut self, limit: u64) {
        if self.work.final_seats > limit {
            self.work.final_seats = limit;
            self.work.additional_latency = self.final_work.duration_on(limit);
        }
    }
}

/// The values that are recorded when a request starts to execute.
struct Execution {
    flow: usize,
    seats: u64,
    waited: Duration,
    /// It starts for the first time.
    is_new: bool,
}

impl Execution {
    fn of<T>(request: &TrackedRequest<T>, now: Duration) -> Self {
        Execution {
            flow: request.flow,
            seats: request.work.max_seats(),
            waited: now.saturating_sub(request.arrived),
            is_new: !request.is_resumed,
        }
    }
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
    robin: u32,
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
    pub cancelled: u64,
}

/// The current load of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of executing requests.
    pub executing: usize,
    /// Seats in use, including those of lingering requests.
    pub seats_in_use: u64,
    /// Seats demanded by waiting requests.
    pub seats_waiting: u64,
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
            robin: 0,
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
    pub fn start(&mut self, now: Duration, arrival: Arrival<T>) -> ArrivalDecision {
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
                self.executes(&Execution::of(&request, now));
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
                    let id = self.pass(now, index, arrival);
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
    pub fn suspend(&mut self, now: Duration, id: RequestId) -> (Ended, Option<Arrival<T>>) {
        let (ended, request) = self.end(now, id, true);
        let arrival = request.map(|request| Arrival {
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
                self.settle(index, work, took);
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
            self.bound(index);
            self.forget_if_idle(index);
        }
        self.counts.rejected += 1;
        self.counts.cancelled += 1;
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

    /// Reports whether no request waits or executes.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0 && self.fast.in_use() == 0
    }

    /// The current load, including the fast path.
    pub fn load(&self) -> Load {
        let fast = self.fast.in_use();
        let load = self.load_without_fast_path();
        let executing = load.executing.saturating_add(usize::try_from(fast).unwrap_or(usize::MAX));
        Load { executing, seats_in_use: load.seats_in_use + fast, ..load }
    }

    fn load_without_fast_path(&self) -> Load {
        Load {
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

    /// The data that the caller attached to a request.
    pub fn ticket_mut(&mut self, id: RequestId) -> Option<&mut T> {
        self.requests.get_mut(id).map(|request| &mut request.ticket)
    }

    pub fn request(&self, id: RequestId) -> Option<&TrackedRequest<T>> {
        self.requests.get(id)
    }

    /// All requests that wait or occupy seats.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &TrackedRequest<T>)> {
        self.requests.iter()
    }

    /// Advances the virtual time to `now`. The state of the queues has not changed since the last call.
    fn sync(&mut self, now: Duration) {
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

    /// The queue of the flow's hand with the least waiting work.
    fn choose(&mut self, dealer: Dealer, hash: u64) -> u32 {
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

    fn insert(&mut self, now: Duration, queue: Option<u32>, arrival: Arrival<T>) -> RequestId {
        let request = self.request_of(now, queue, arrival);
        self.requests.insert(request)
    }

    fn request_of(&self, now: Duration, queue: Option<u32>, arrival: Arrival<T>) -> TrackedRequest<T> {
        let Arrival { flow, distinguisher, hash, work, is_watch, is_resumed, ticket, .. } = arrival;
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

    /// Executes a request that no other precedes, as if it were enqueued and dispatched at once.
    fn pass(&mut self, now: Duration, index: u32, arrival: Arrival<T>) -> RequestId {
        let mut request = self.request_of(now, Some(index), arrival);
        let queue = self.queues.get_or_add(index);
        if queue.is_idle() {
            self.active_queues += 1;
            queue.next_dispatch = self.current_r;
        }
        queue.next_dispatch = queue.next_dispatch.max(request.arrived_at);
        self.gauges.dispatch.note_only(self.current_r, queue.next_dispatch, queue.discounted_dispatch());
        queue.executing += 1;
        request.fit_to(self.limit);
        request.started = Some(now);
        let execution = Execution::of(&request, now);
        queue.begin(execution.seats, request.total_work);
        self.queue_seats_in_use += execution.seats;
        self.robin = index;
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.passed_queue();
        }
        self.executes(&execution);
        self.requests.insert(request)
    }

    fn enqueue(&mut self, index: u32, id: RequestId) {
        let Some(request) = self.requests.get(id) else { return };
        let queue = self.queues.get_or_add(index);
        if queue.is_idle() {
            self.active_queues += 1;
            queue.next_dispatch = self.current_r;
        }
        queue.push(id, request.total_work, &request.work);
        let length = queue.len();
        self.waiting += 1;
        self.seats_waiting += request.work.max_seats();
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.entered_queue(&request.work, length);
        }
        self.bound(index);
    }

    /// Removes a request from its queue; the caller updates the statistics of the flow schema.
    fn unqueue(&mut self, index: u32, id: RequestId, request: &TrackedRequest<T>) {
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
    fn bound(&mut self, index: u32) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        if let Some(oldest) = queue.oldest().and_then(|id| self.requests.get(id)) {
            queue.next_dispatch = queue.next_dispatch.max(oldest.arrived_at);
        }
    }

    fn dispatch_all(&mut self, now: Duration) {
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
        for (index, queue) in self.queues.iter_after(self.robin) {
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
        self.robin = index;
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.left_queue(&waited_with);
        }
        self.executes(&execution);
        self.bound(index);
    }

    /// Records a request that starts to execute.
    fn executes(&mut self, execution: &Execution) {
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
    fn settle(&mut self, index: u32, work: WorkEstimate, took: Duration) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        queue.executing -= 1;
        let initial = work.initial_seats;
        queue.next_dispatch -= SeatSeconds::of(initial, ESTIMATED_SERVICE);
        queue.next_dispatch += SeatSeconds::of(initial, took);
        if queue.is_idle() {
            self.active_queues -= 1;
        }
        self.bound(index);
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

    /// Removes an idle queue if there are many, or if its index is above the configured number.
    fn forget_if_idle(&mut self, index: u32) {
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

    fn note_load(&mut self, now: Duration) {
        self.note_fast_use(now);
        #[expect(clippy::cast_precision_loss, reason = "numbers of seats are small")]
        let demand = (self.seats_in_use + self.seats_waiting) as f64;
        self.demand.set(now, demand);
        self.gauges.set(now, self.load_without_fast_path());
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
