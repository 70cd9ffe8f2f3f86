//! Fair queueing of one priority level.
//!
//! A request that cannot run at once waits in one of its flow's queues. The queue whose oldest request would finish first, if all queues
//! with work shared the seats evenly, is served next. That imagined progress is the virtual time `R`: it advances by seat-seconds per
//! queue. A queue's `next_dispatch` is the reading of `R` at which its next request starts in the imagined world. When a request is
//! dispatched it is charged with its estimated work, and what it really took is settled when it finishes.

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
use crate::estimate::Work;
use crate::fast_path::FastPath;
use crate::flow_stats::{FlowStats, LevelGauges, RejectReason};
use crate::statistics::{Integrator, Period};
use fast::FastUse;
use queue::{Queue, Queues};
pub use slab::RequestId;
use slab::Slab;

/// How long the first phase of a request is assumed to take before it has run.
const ESTIMATED_SERVICE: Duration = Duration::from_millis(3);
/// This many queues are kept when they are empty; more only while they have work.
const KEPT_QUEUES: usize = 256;

/// What was counted about flow schemas that are gone is kept for as long as there are no more than so many.
const KEPT_FLOWS: usize = 256;

/// What happens to requests of a priority level that find no free seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// There is no limit.
    Exempt,
    /// They are refused.
    Reject,
    /// They wait.
    Queue {
        /// Deals a flow its queues.
        dealer: Dealer,
        /// How many queues there are.
        queues: u32,
        /// How many requests may wait in each.
        length_limit: u32,
    },
}

/// What the owner of a request keeps with it.
pub trait Ticket {
    /// The request waited and may run now. Called with the queue set locked.
    fn dispatched(&mut self);
}

/// A request that asks for seats.
#[derive(Debug)]
pub struct Arrival<T> {
    /// The number of its flow schema in this level ([`QueueSet::flow`]).
    pub flow: usize,
    /// Its flow distinguisher.
    pub distinguisher: Str,
    /// What its queue is chosen by.
    pub hash: u64,
    /// What it will probably cost.
    pub work: Work,
    /// How many watches will hear of it, where that was asked.
    pub interested_watches: Option<usize>,
    /// Whether it is a watch, of which only the beginning takes seats.
    pub is_watch: bool,
    /// Whether it executed before and was suspended ([`QueueSet::suspend`]): it is not counted a second time.
    pub is_resumed: bool,
    /// What its owner keeps with it.
    pub ticket: T,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may run; its seats are given back by [`QueueSet::finish`].
    Executing(RequestId),
    /// It waits until [`Ticket::dispatched`].
    Waiting(RequestId),
    /// It is refused.
    Rejected(RejectReason),
}

/// What became of a request that nobody waits for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// It was waiting, and is gone.
    Removed,
    /// It had been dispatched before, and executes.
    Executing,
    /// There is no such request.
    Unknown,
}

/// How a request that ended leaves its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// [`QueueSet::release`] has to be called after so long: the request occupies its seats until then.
    pub linger: Option<Duration>,
    /// Nothing waits or executes any more.
    pub is_idle: bool,
}

/// A request that waits or occupies seats.
#[derive(Debug)]
pub struct Request<T> {
    /// The number of its flow schema.
    pub flow: usize,
    /// Its flow distinguisher.
    pub distinguisher: Str,
    /// Its work, final seats reduced to the limit when it was dispatched.
    pub work: Work,
    /// When it came.
    pub arrived: Duration,
    /// When it began to execute; none while it waits.
    pub started: Option<Duration>,
    /// Its queue; none where there are no queues.
    pub queue: Option<u32>,
    /// What its owner keeps with it.
    pub ticket: T,
    hash: u64,
    /// Its work as it was estimated.
    asked: Work,
    is_watch: bool,
    is_resumed: bool,
    is_lingering: bool,
    arrived_at: SeatSeconds,
    total_work: SeatSeconds,
    final_work: SeatSeconds,
}

impl<T> Request<T> {
    /// Whether it executes; afterwards it may still occupy seats.
    pub fn is_executing(&self) -> bool {
        self.started.is_some() && !self.is_lingering
    }

    /// Final seats that do not fit become fewer seats for a longer time.
    fn fit_to(&mut self, limit: u64) {
        if self.work.final_seats > limit {
            self.work.final_seats = limit;
            self.work.additional_latency = self.final_work.duration_on(limit);
        }
    }
}

/// What is counted when a request begins to execute.
struct Execution {
    flow: usize,
    seats: u64,
    waited: Duration,
    /// Whether it begins for the first time.
    is_new: bool,
}

impl Execution {
    fn of<T>(request: &Request<T>, now: Duration) -> Self {
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
    queues: Queues,
    requests: Slab<Request<T>>,
    /// The virtual time, and the real time at which it was read.
    current_r: SeatSeconds,
    last_sync: Duration,
    /// The index of the queue that was served last.
    robin: u32,
    /// How many queues have requests that wait or execute.
    active_queues: u32,
    /// Seats in use by requests from queues.
    queue_seats_in_use: u64,
    waiting: usize,
    executing: usize,
    seats_in_use: u64,
    seats_waiting: u64,
    enqueues: u64,
    pub(crate) counts: Counts,
    demand: Integrator,
    pub(crate) gauges: LevelGauges,
    flows: Vec<FlowStats>,
    fast: Arc<FastPath>,
    fast_use: FastUse,
}

/// What became of the requests of a level so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that began to execute.
    pub dispatched: u64,
    /// Requests that were refused, for whatever reason.
    pub rejected: u64,
    /// Kubernetes has this column and counts nothing in it.
    pub timed_out: u64,
    /// Requests that left their queue because their time was over or their client was gone.
    pub cancelled: u64,
}

/// Where a level stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that execute.
    pub executing: usize,
    /// Seats in use, by requests that linger, too.
    pub seats_in_use: u64,
    /// Seats that waiting requests want.
    pub seats_waiting: u64,
}

impl<T: Ticket> QueueSet<T> {
    /// A queue set without seats; [`QueueSet::configure`] gives it some.
    pub fn new(queuing: Queuing, now: Duration) -> Self {
        QueueSet {
            queuing,
            limit: 0,
            queues: Queues::default(),
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
            counts: Counts::default(),
            demand: Integrator::new(now),
            gauges: LevelGauges::new(now),
            flows: Vec::new(),
            fast: Arc::default(),
            fast_use: FastUse::since(now),
        }
    }

    /// Changes how requests wait and how many seats there are. Requests that are here stay.
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

    /// The flow schemas are configured anew: those that [`QueueSet::flow`] is not called for are gone.
    pub(crate) fn retire_flows(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.is_configured = false);
    }

    /// The number under which requests of a flow schema arrive here. What was counted about a schema that is gone stays, unless there are
    /// very many.
    pub fn flow(&mut self, schema: &str) -> usize {
        let found = self.flows.iter().position(|flow| flow.schema == schema);
        if let Some(known) = found {
            if let Some(flow) = self.flows.get_mut(known) {
                flow.is_configured = true;
            }
            return known;
        }
        self.take_fast_counts();
        if self.flows.len() >= KEPT_FLOWS
            && let Some(free) = self.flows.iter().position(FlowStats::is_forgettable)
            && let Some(flow) = self.flows.get_mut(free)
        {
            *flow = FlowStats::new(schema);
            return free;
        }
        self.flows.push(FlowStats::new(schema));
        self.flows.len() - 1
    }

    /// Takes in a request.
    pub fn start(&mut self, now: Duration, arrival: Arrival<T>) -> Admission {
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
                Admission::Executing(id)
            }
            Queuing::Queue { dealer, length_limit, .. } => {
                let index = self.choose(dealer, arrival.hash);
                let length = self.queues.get(index).map_or(0, Queue::len);
                let has_room = self.make_room(seats);
                if self.occupied() >= self.limit && length >= length_limit as usize {
                    return self.reject(arrival.flow, RejectReason::QueueFull);
                }
                if self.waiting == 0 && self.occupied() < self.limit && has_room {
                    // Nobody else waits, so this one is next.
                    let id = self.pass(now, index, arrival);
                    self.note_load(now);
                    return Admission::Executing(id);
                }
                let id = self.insert(now, Some(index), arrival);
                self.enqueue(index, id);
                self.dispatch_all(now);
                self.note_load(now);
                match self.requests.get(id) {
                    Some(Request { started: Some(_), .. }) => Admission::Executing(id),
                    _ => Admission::Waiting(id),
                }
            }
        }
    }

    /// A request has executed.
    pub fn finish(&mut self, now: Duration, id: RequestId) -> Ended {
        self.end(now, id, false).0
    }

    /// A request gives its seats up for a while. It comes back with the arrival that is returned.
    pub fn suspend(&mut self, now: Duration, id: RequestId) -> (Ended, Option<Arrival<T>>) {
        let (ended, request) = self.end(now, id, true);
        let arrival = request.map(|request| Arrival {
            flow: request.flow,
            distinguisher: request.distinguisher,
            hash: request.hash,
            work: request.asked,
            interested_watches: None,
            is_watch: request.is_watch,
            is_resumed: true,
            ticket: request.ticket,
        });
        (ended, arrival)
    }

    /// The owner of a request is done with it, wherever it is.
    pub fn leave(&mut self, now: Duration, id: RequestId) -> Ended {
        match self.withdraw(now, id) {
            Withdrawn::Executing => self.finish(now, id),
            Withdrawn::Removed | Withdrawn::Unknown => Ended { linger: None, is_idle: self.is_idle() },
        }
    }

    fn end(&mut self, now: Duration, id: RequestId, is_suspended: bool) -> (Ended, Option<Request<T>>) {
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

    /// The seats of a request that lingered are free.
    pub fn release(&mut self, now: Duration, id: RequestId) {
        self.sync(now);
        if self.requests.get(id).is_some_and(|request| request.is_lingering) {
            self.give_back(id);
            self.dispatch_all(now);
            self.open_fast_path();
            self.note_load(now);
        }
    }

    /// The owner of a request no longer waits for it.
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

    /// Whether nothing waits or executes.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0 && self.fast.in_use() == 0
    }

    /// Where it stands.
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

    /// How many seats may be in use.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The virtual time when it was last looked at.
    pub fn current_r(&self) -> SeatSeconds {
        self.current_r
    }

    /// What was counted, by flow schema.
    pub fn flows(&self) -> &[FlowStats] {
        &self.flows
    }

    /// What the owner of a request keeps with it.
    pub fn ticket_mut(&mut self, id: RequestId) -> Option<&mut T> {
        self.requests.get_mut(id).map(|request| &mut request.ticket)
    }

    /// A request by its number.
    pub fn request(&self, id: RequestId) -> Option<&Request<T>> {
        self.requests.get(id)
    }

    /// Everything that waits or occupies seats.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &Request<T>)> {
        self.requests.iter()
    }

    /// Brings the virtual time to now. What the queues hold has been so since the last time.
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

    /// Whether so many seats are free. A request that wants more than there are waits until it is alone.
    fn fits(&self, seats: u64) -> bool {
        if seats > self.limit {
            self.executing == 0 && self.fast.occupied() == 0
        } else {
            self.occupied().saturating_add(seats) <= self.limit
        }
    }

    fn reject(&mut self, flow: usize, reason: RejectReason) -> Admission {
        self.counts.rejected += 1;
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.rejected(reason);
            flow.waited(Duration::ZERO, false);
        }
        Admission::Rejected(reason)
    }

    /// The queue of the flow's hand in which the least work waits.
    fn choose(&mut self, dealer: Dealer, hash: u64) -> u32 {
        if self.waiting == 0 {
            // Nothing waits anywhere: the first that is looked at is as good as any.
            let first = self.next_offset(dealer.hand_size());
            return dealer.card(hash, first);
        }
        let hand = dealer.deal(hash);
        let cards = hand.cards();
        // Beginning elsewhere each time keeps flows with overlapping hands apart.
        let offset = self.next_offset(cards.len());
        let (before, from) = cards.split_at_checked(offset).unwrap_or_default();
        let waiting =
            |index: &u32| self.queues.get(*index).map_or(SeatSeconds::ZERO, |queue| queue.waiting_work);
        from.iter().chain(before).copied().min_by_key(waiting).unwrap_or_default()
    }

    /// Where to begin among `count` queues; another place each time.
    fn next_offset(&mut self, count: usize) -> usize {
        self.enqueues = self.enqueues.wrapping_add(1);
        usize::try_from(self.enqueues % count.max(1) as u64).unwrap_or_default()
    }

    fn insert(&mut self, now: Duration, queue: Option<u32>, arrival: Arrival<T>) -> RequestId {
        let request = self.request_of(now, queue, arrival);
        self.requests.insert(request)
    }

    fn request_of(&self, now: Duration, queue: Option<u32>, arrival: Arrival<T>) -> Request<T> {
        let Arrival { flow, distinguisher, hash, work, is_watch, is_resumed, ticket, .. } = arrival;
        let final_work = SeatSeconds::of(work.final_seats, work.additional_latency);
        Request {
            flow,
            distinguisher,
            work,
            arrived: now,
            started: None,
            queue,
            ticket,
            hash,
            asked: work,
            is_watch,
            is_resumed,
            is_lingering: false,
            arrived_at: self.current_r,
            total_work: SeatSeconds::of(work.initial_seats, ESTIMATED_SERVICE) + final_work,
            final_work,
        }
    }

    /// Lets a request execute that nobody is before: as if it were put into its queue and dispatched from there.
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

    /// Takes a request out of its queue; what is counted per flow schema is left to the caller.
    fn unqueue(&mut self, index: u32, id: RequestId, request: &Request<T>) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        if queue.remove(id, request.total_work, &request.work) {
            self.waiting -= 1;
            self.seats_waiting -= request.work.max_seats();
            if queue.is_idle() {
                self.active_queues -= 1;
            }
        }
    }

    /// A request starts no earlier in the imagined world than it came: otherwise a queue that never uses its share would save it up.
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

    /// The queue whose oldest request would finish first, looking round from the one that was served last.
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

    /// Takes the oldest request out of its queue and lets it execute.
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

    /// Counts a request that begins to execute.
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

    /// Charges a queue for what a request really took.
    fn settle(&mut self, index: u32, work: Work, took: Duration) {
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

    fn give_back(&mut self, id: RequestId) -> Option<Request<T>> {
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

    /// Empty queues are kept while they are few, and dropped where there are more of them than there should be.
    fn forget_if_idle(&mut self, index: u32) {
        let wanted = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            _ => 0,
        };
        if (self.queues.len() > KEPT_QUEUES || index >= wanted)
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

    /// For metrics: between which readings of `R` the waiting requests start, at the moment of a dispatch.
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

    /// How many queues there are, those with remaining requests above the configured number, too.
    pub fn queue_count(&self) -> u32 {
        let wanted = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            _ => 0,
        };
        wanted.max(self.queues.last().map_or(0, |last| last + 1))
    }

    /// A queue as the tables show it; an empty one where it has no requests.
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

    /// The queues with requests that wait, and those.
    pub fn busy_queues(&self) -> impl Iterator<Item = (u32, Vec<RequestId>)> {
        self.queues
            .iter()
            .filter(|(_, queue)| queue.len() > 0)
            .map(|(index, queue)| (index, queue.ids().collect()))
    }

    /// How many queues have requests that wait.
    pub fn queues_with_waiting(&self) -> usize {
        self.queues.iter().filter(|(_, queue)| queue.len() > 0).count()
    }
}

/// One queue, for the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// The requests that wait, oldest first.
    pub waiting: Vec<RequestId>,
    /// How many of its requests execute.
    pub executing: usize,
    /// Seats that its requests occupy.
    pub seats_in_use: u64,
    /// The virtual time at which its next request starts.
    pub next_dispatch: SeatSeconds,
    /// The initial seats of the waiting requests.
    pub initial_seats_sum: u64,
    /// The seats of the waiting requests.
    pub max_seats_sum: u64,
    /// The work of the waiting requests.
    pub total_work_sum: SeatSeconds,
}
