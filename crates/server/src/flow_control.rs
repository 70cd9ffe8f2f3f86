//! API Priority and Fairness: the queueing stage of the request pipeline.
//!
//! The [`flowcontrol`] crate decides without I/O; this module supplies the time, the stored objects and the
//! requests, and suspends requests while they are queued.

mod configure;
mod dump;
mod estimate;
mod maintain;
mod metrics;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use authn::Caller;
use flowcontrol::{
    Admission, Arrival, Class, Configuration, Controller, Ended, FastSeat, PerShard, Phase, PresentRequest,
    PresentRequests, RequestDigest, RequestId, Ticket, Traffic, WatchScope, WatchTracker, Withdrawn,
};
use http::{HeaderName, HeaderValue, Response};
use tokio::sync::{Notify, oneshot};
use value::Str;

use crate::body::Body;
use crate::request_info::{Query, RequestInfo};
use crate::respond;
use crate::state::State;
pub(crate) use configure::{FlowControlInformers, run};
pub(crate) use dump::page as dump_page;
pub(crate) use maintain::{begin, is_served, maintain};
pub(crate) use metrics::FlowControlMetrics;

/// Longest time that a request may wait in its queue.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// A request may wait for `1 / WAIT_PART` of its allowed time.
const WAIT_PART: u32 = 4;

static FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Limits concurrent requests according to the stored FlowSchemas and PriorityLevelConfigurations.
pub struct FlowControl {
    shared: Arc<FlowControlShared>,
    epoch_time: SystemTime,
    configured: Mutex<configure::FlowControlObjects>,
    in_force: ArcSwap<PerShard<Arc<InForce>>>,
    watches: Arc<WatchTracker>,
}

impl std::fmt::Debug for FlowControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FlowControl")
    }
}

/// State that requests need until they release their seats.
struct FlowControlShared {
    /// All durations passed to `flowcontrol` are relative to this.
    epoch: Instant,
    /// `--request-timeout`: determines the queue wait of requests without a deadline.
    request_timeout: Duration,
    traffic: Mutex<Traffic>,
    /// Requests that have arrived and are not answered yet, in any stage.
    present: PresentRequests,
    /// Wakes the background task: statuses have to be written, or a quiescing level may be idle.
    changed: Notify,
}

impl FlowControlShared {
    /// Time since the epoch, as `flowcontrol` expects it.
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Longest queue wait of a request that may take `allowed` in total.
    fn longest_wait(allowed: Duration) -> Duration {
        (allowed / WAIT_PART).min(MAX_WAIT)
    }
}

/// The current configuration, with the response headers of each class.
struct InForce {
    shared: Arc<FlowControlShared>,
    configuration: Arc<Configuration<Waiter>>,
    /// Indexed like the classes of the configuration.
    uids: Vec<MatchedUids>,
}

/// Header values with the uids of a request's FlowSchema and PriorityLevelConfiguration.
#[derive(Debug)]
struct MatchedUids {
    schema: HeaderValue,
    level: HeaderValue,
}

impl MatchedUids {
    fn of(class: &Class<Waiter>) -> Self {
        let value = |uid: &Str| HeaderValue::try_from(uid.as_str()).unwrap_or(HeaderValue::from_static(""));
        MatchedUids { schema: value(&class.schema.uid), level: value(&class.level_uid) }
    }
}

/// The FlowSchema and priority level that a request was assigned to.
#[derive(Clone)]
pub struct Assignment {
    in_force: Arc<InForce>,
    /// Index of the class in the configuration.
    index: usize,
}

impl std::fmt::Debug for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Assignment({})", self.class().schema.name)
    }
}

impl Assignment {
    fn class(&self) -> &Class<Waiter> {
        self.in_force.configuration.class(self.index)
    }

    fn shared(&self) -> &FlowControlShared {
        &self.in_force.shared
    }

    /// Adds the two uid headers. Values set by an aggregated API server come after them.
    pub fn add_to(&self, response: &mut Response<Body>) {
        let Some(uids) = self.in_force.uids.get(self.index) else { return };
        let headers = response.headers_mut();
        for (name, value) in [(&FLOW_SCHEMA_UID, &uids.schema), (&PRIORITY_LEVEL_UID, &uids.level)] {
            if let Some(theirs) = headers.insert(name, value.clone()) {
                headers.append(name, theirs);
            }
        }
    }
}

/// A request in a queue set, with the sender that wakes it.
#[derive(Debug)]
pub(crate) struct Waiter {
    caller: Caller,
    info: Arc<RequestInfo>,
    wake: Option<oneshot::Sender<()>>,
}

impl Ticket for Waiter {
    fn dispatched(&mut self) {
        if let Some(wake) = self.wake.take() {
            // If the waiting request is gone, dropping its seat dispatches the next one.
            let _ = wake.send(());
        }
    }
}

/// A request for a seat.
pub(crate) struct Asking<'a> {
    pub(crate) state: &'a State,
    pub(crate) caller: &'a Caller,
    pub(crate) info: &'a Arc<RequestInfo>,
    pub(crate) query: &'a Query,
    pub(crate) arrived: Instant,
    /// Time limit for the response, if any.
    pub(crate) deadline: Option<Instant>,
    /// Seats are released while a body arrives.
    pub(crate) has_body: bool,
    /// Completes when the client disconnects.
    pub(crate) gone: ClientGone,
}

impl Asking<'_> {
    /// True if the request takes exactly one seat from start to end.
    fn is_light(&self) -> bool {
        !self.has_body && self.info.is_read_only() && !matches!(self.info.verb.as_str(), "list" | "watch")
    }
}

/// Signals that a client has disconnected. The default never does.
#[derive(Debug, Default)]
pub(crate) struct ClientGone(Option<oneshot::Receiver<()>>);

impl ClientGone {
    /// Completes when the sender of `sender_lives` is dropped.
    pub(crate) fn with(sender_lives: oneshot::Receiver<()>) -> Self {
        ClientGone(Some(sender_lives))
    }

    async fn wait(&mut self) {
        let Some(gone) = &mut self.0 else { return std::future::pending().await };
        let _ = gone.await;
        // A completed receiver must not be polled again.
        self.0 = None;
    }
}

/// A rejected request, with the delay in seconds for `Retry-After`.
pub(crate) struct FlowRejection {
    assignment: Assignment,
    retry_after: u64,
}

impl FlowRejection {
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = respond::too_many_requests_after(self.retry_after);
        self.assignment.add_to(&mut response);
        response
    }
}

impl FlowControl {
    /// Limits requests to `seats` at once, using the mandatory objects until the stored ones are loaded.
    pub(crate) fn new(seats: usize, request_timeout: Duration) -> Arc<Self> {
        let mut controller = Controller::new(u32::try_from(seats).unwrap_or(u32::MAX), Duration::ZERO);
        let first = controller.configure(Duration::ZERO, Vec::new(), Vec::new());
        let mut traffic = Traffic::new(Duration::ZERO);
        let executing = u64::try_from(first.max_executing).unwrap_or_default();
        traffic.set_limits(Duration::ZERO, first.max_waiting, executing);
        let shared = Arc::new(FlowControlShared {
            epoch: Instant::now(),
            request_timeout,
            traffic: Mutex::new(traffic),
            present: PresentRequests::default(),
            changed: Notify::new(),
        });
        Arc::new(FlowControl {
            epoch_time: SystemTime::now(),
            configured: Mutex::new(configure::FlowControlObjects::new(controller)),
            in_force: ArcSwap::from_pointee(InForce::per_shard(&shared, first.configuration)),
            watches: Arc::default(),
            shared,
        })
    }

    /// Counts a request as present until the result is dropped.
    pub(crate) fn arrived(&self) -> PresentRequest {
        self.shared.present.arrive()
    }

    fn now(&self) -> Duration {
        self.shared.now()
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.shared.traffic()
    }

    /// Adds the seat usage on the fast paths of all levels to the traffic statistics.
    fn note_fast_paths(&self, configured: &configure::FlowControlObjects) {
        let now = self.now();
        let (mut nanoseconds, mut most) = (0, 0);
        for (level, _) in configured.controller.levels() {
            let (of_level, most_of_level) = level.queues().take_fast_use(now);
            nanoseconds += of_level;
            most += most_of_level;
        }
        self.traffic().note_fast(now, nanoseconds, most);
    }

    /// Maximum of concurrently executing requests in the last second: `(reading, mutating)`.
    pub(crate) fn executing(&self) -> (usize, usize) {
        self.most(Phase::Executing)
    }

    /// Maximum of queued requests in the last second: `(reading, mutating)`.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.most(Phase::Waiting)
    }

    fn most(&self, phase: Phase) -> (usize, usize) {
        let mut traffic = self.traffic();
        let mut most = |mutating| usize::try_from(traffic.watermark(phase, mutating)).unwrap_or_default();
        (most(false), most(true))
    }

    /// Classifies a request and waits for its seats.
    pub(crate) async fn admit(&self, asking: Asking<'_>) -> Result<FairSeat, FlowRejection> {
        let is_light = asking.is_light();
        let Asking { state, caller, info, query, arrived, deadline, has_body: _, gone } = asking;
        let in_force = Arc::clone(self.in_force.load().get());
        let asked = attributes(caller, info);
        let assignment = Assignment { index: in_force.configuration.index(&asked), in_force };
        let class = assignment.class();
        if is_light && let Some(fast) = class.enter_fast_path(self.now(), self.shared.present.estimate()) {
            return Ok(FairSeat::new(assignment, Hold::Fast(fast), true, gone));
        }
        let (distinguisher, hash) = class.flow_of(&asked);
        let (work, watches) = estimate::work(state, info, query, &self.watches, class.level.max_seats());
        let is_watch = info.verb == "watch";
        let ticket = Waiter { caller: caller.clone(), info: Arc::clone(info), wake: None };
        let arrival = Arrival {
            flow: class.flow,
            distinguisher: distinguisher.into(),
            hash,
            work,
            interested_watches: watches,
            is_watch,
            is_resumed: false,
            ticket,
        };
        let mut seat = FairSeat::new(assignment, Hold::Nothing, info.is_read_only(), gone);
        let allowed = deadline
            .map_or(self.shared.request_timeout, |deadline| deadline.saturating_duration_since(arrived));
        if !seat.take(arrival, arrived, allowed).await {
            return Err(FlowRejection { retry_after: seat.refused(), assignment: seat.assignment.clone() });
        }
        if is_watch {
            seat.watch =
                estimate::watched(info).map(|scope| Box::new(OpenWatch::begin(&self.watches, scope)));
        }
        Ok(seat)
    }
}

impl InForce {
    /// Every shard has values of its own to take references to; the configuration is the same.
    fn per_shard(
        shared: &Arc<FlowControlShared>,
        configuration: Configuration<Waiter>,
    ) -> PerShard<Arc<Self>> {
        let configuration = Arc::new(configuration);
        PerShard::new(|| {
            let uids = (0..configuration.len()).map(|index| MatchedUids::of(configuration.class(index)));
            let uids = uids.collect();
            Arc::new(InForce { shared: Arc::clone(shared), configuration: Arc::clone(&configuration), uids })
        })
    }
}

/// Converts a request to the attributes that FlowSchemas match.
fn attributes<'a>(caller: &'a Caller, info: &'a RequestInfo) -> RequestDigest<'a> {
    RequestDigest {
        user: caller.user(),
        is_resource: info.is_resource,
        verb: &info.verb,
        group: &info.group,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        path: &info.path,
    }
}

/// The seats of one request; released on drop.
#[derive(Debug)]
pub(crate) struct FairSeat {
    assignment: Assignment,
    hold: Hold,
    is_read_only: bool,
    gone: ClientGone,
    watch: Option<Box<OpenWatch>>,
}

/// The request's current share of its priority level.
#[derive(Debug)]
enum Hold {
    /// No seat now or later.
    Nothing,
    /// One seat of the fast path.
    Fast(FastSeat),
    /// Released its fast-path seat and may take one again.
    LeftFastPath,
    /// A position in a queue.
    Queued(RequestId),
    /// Seats of the priority level.
    Executing(RequestId),
    /// Released its seats; the arrival is queued again by `reacquire`.
    Suspended(Box<Arrival<Waiter>>),
}

/// Outcome of a request for seats.
enum Started {
    Executing {
        /// True if more requests are present than the level has seats. Most requests never await, so each
        /// would release its seat before the next is polled, none would ever queue, and the client that sends
        /// most would get most. Such a request yields once while it holds its seat, so that the others queue,
        /// where flows are separated.
        is_crowded: bool,
    },
    Refused,
    /// Queued until it is dispatched.
    Waiting(Waiting),
}

impl FairSeat {
    fn new(assignment: Assignment, hold: Hold, is_read_only: bool, gone: ClientGone) -> Self {
        FairSeat { assignment, hold, is_read_only, gone, watch: None }
    }

    /// Source of the response's uid headers.
    pub(crate) fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Releases the seats temporarily; a watch stays registered.
    pub(crate) fn release(&mut self) {
        self.hold = match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Fast(seat) => {
                self.leave_fast_path(seat);
                Hold::LeftFastPath
            }
            // A watch needs no seat after its initial events.
            Hold::Executing(id) if self.watch.is_some() => {
                self.finish(id);
                Hold::Nothing
            }
            Hold::Executing(id) => {
                let now = self.assignment.shared().now();
                let (ended, arrival) = self.assignment.class().level.queues().suspend(now, id);
                self.stops_executing(now);
                self.ended(now, id, ended);
                arrival.map_or(Hold::Nothing, |arrival| Hold::Suspended(Box::new(arrival)))
            }
            other => other,
        };
    }

    /// Takes seats again, queued in the same flow. An error is the `Retry-After` delay in seconds.
    pub(crate) async fn reacquire(&mut self) -> Result<(), u64> {
        let is_admitted = match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Suspended(arrival) => {
                // It was admitted in time. Its new wait is limited by its own deadline and by what a new
                // request may wait.
                let allowed = self.assignment.shared().request_timeout;
                self.take(*arrival, Instant::now(), allowed).await
            }
            Hold::LeftFastPath => {
                let shared = self.assignment.shared();
                let seat = self.assignment.class().enter_fast_path(shared.now(), shared.present.estimate());
                self.hold = seat.map_or(Hold::LeftFastPath, Hold::Fast);
                matches!(self.hold, Hold::Fast(_))
            }
            other => {
                self.hold = other;
                true
            }
        };
        if is_admitted { Ok(()) } else { Err(self.refused()) }
    }

    /// Takes seats for a request that arrived at `arrived` and may take `allowed`; `false` if none are free
    /// in time.
    async fn take(&mut self, arrival: Arrival<Waiter>, arrived: Instant, allowed: Duration) -> bool {
        match self.start(arrival) {
            Started::Executing { is_crowded } => {
                if is_crowded {
                    admission::expression::yield_now().await;
                }
                true
            }
            Started::Refused => false,
            Started::Waiting(waiting) => Box::pin(self.wait(waiting, arrived, allowed)).await,
        }
    }

    /// Requests seats without waiting.
    fn start(&mut self, arrival: Arrival<Waiter>) -> Started {
        let now = self.assignment.shared().now();
        let mut queues = self.assignment.class().level.queues();
        match queues.start(now, arrival) {
            Admission::Executing(id) => {
                let is_crowded = queues.limit() < self.assignment.shared().present.count();
                drop(queues);
                self.begins(now, id);
                Started::Executing { is_crowded: is_crowded && !self.assignment.class().is_exempt }
            }
            Admission::Rejected(_) => Started::Refused,
            Admission::Waiting(id) => {
                let (wake, dispatched) = oneshot::channel();
                if let Some(ticket) = queues.ticket_mut(id) {
                    ticket.wake = Some(wake);
                }
                drop(queues);
                self.hold = Hold::Queued(id);
                Started::Waiting(Waiting::begin(self, now, dispatched))
            }
        }
    }

    /// Waits in the queue for a part of `allowed`; `false` if no seat becomes free in time or the client
    /// disconnects.
    async fn wait(&mut self, mut waiting: Waiting, since: Instant, allowed: Duration) -> bool {
        let until = since.checked_add(FlowControlShared::longest_wait(allowed)).unwrap_or(since);
        let is_dispatched = tokio::select! {
            biased;
            woken = &mut waiting.dispatched => woken.is_ok(),
            () = tokio::time::sleep_until(until.into()) => false,
            () = self.gone.wait() => false,
        };
        drop(waiting);
        let Hold::Queued(id) = self.hold else { return false };
        let now = self.assignment.shared().now();
        // It may have been dispatched at the last moment.
        if is_dispatched || self.assignment.class().level.queues().withdraw(now, id) == Withdrawn::Executing {
            self.begins(now, id);
            return true;
        }
        self.hold = Hold::Nothing;
        false
    }

    fn begins(&mut self, now: Duration, id: RequestId) {
        self.hold = Hold::Executing(id);
        self.note(now, Phase::Executing, 1);
    }

    fn stops_executing(&self, now: Duration) {
        self.note(now, Phase::Executing, -1);
    }

    fn note(&self, now: Duration, phase: Phase, change: i64) {
        self.assignment.shared().traffic().note(now, phase, !self.is_read_only, change);
    }

    /// Counts a rejection; returns the `Retry-After` delay in seconds.
    fn refused(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.assignment.class().level.refused(now.as_secs())
    }

    fn finish(&self, id: RequestId) {
        let now = self.assignment.shared().now();
        let ended = self.assignment.class().level.queues().finish(now, id);
        self.stops_executing(now);
        self.ended(now, id, ended);
    }

    fn leave_fast_path(&self, seat: FastSeat) {
        let (class, shared) = (self.assignment.class(), self.assignment.shared());
        class.leave_fast_path(shared.now(), seat);
        if class.level.is_quiescing() {
            shared.changed.notify_one();
        }
    }

    /// Finishes the release of seats: wakes the configuration task, and ends the linger time of final seats
    /// later.
    fn ended(&self, now: Duration, id: RequestId, ended: Ended) {
        let level = &self.assignment.class().level;
        if ended.is_idle && level.is_quiescing() {
            self.assignment.shared().changed.notify_one();
        }
        let Some(linger) = ended.linger else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let assignment = self.assignment.clone();
                drop(runtime.spawn(async move {
                    tokio::time::sleep(linger).await;
                    assignment.class().level.queues().release(assignment.shared().now(), id);
                }));
            }
            Err(_) => level.queues().release(now, id),
        }
    }
}

impl Drop for FairSeat {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Fast(seat) => self.leave_fast_path(seat),
            Hold::Executing(id) => self.finish(id),
            Hold::Queued(id) => {
                let now = self.assignment.shared().now();
                let ended = self.assignment.class().level.queues().leave(now, id);
                self.ended(now, id, ended);
            }
            Hold::Nothing | Hold::LeftFastPath | Hold::Suspended(_) => {}
        }
    }
}

/// Guard that counts a request as queued until it is dropped.
struct Waiting {
    assignment: Assignment,
    is_read_only: bool,
    dispatched: oneshot::Receiver<()>,
}

impl Waiting {
    fn begin(seat: &FairSeat, now: Duration, dispatched: oneshot::Receiver<()>) -> Self {
        seat.note(now, Phase::Waiting, 1);
        Waiting { assignment: seat.assignment.clone(), is_read_only: seat.is_read_only, dispatched }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let shared = self.assignment.shared();
        shared.traffic().note(shared.now(), Phase::Waiting, !self.is_read_only, -1);
    }
}

/// Guard that registers an open watch until it is dropped.
#[derive(Debug)]
struct OpenWatch {
    watches: Arc<WatchTracker>,
    scope: WatchScope,
}

impl OpenWatch {
    fn begin(watches: &Arc<WatchTracker>, scope: WatchScope) -> Self {
        watches.register(&scope);
        OpenWatch { watches: Arc::clone(watches), scope }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.forget(&self.scope);
    }
}
