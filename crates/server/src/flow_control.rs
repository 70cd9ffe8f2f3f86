//! API Priority and Fairness: the queue stage of the pipeline.
//!
//! [`flowcontrol`] decides; this module gives it the time, the stored objects and the requests, and lets requests wait.

mod configure;
mod dump;
mod estimate;
mod maintain;
mod metrics;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use authn::Caller;
use flowcontrol::{
    Admission, Arrival, Attributes, Class, Configuration, Controller, Finished, Level, Phase, Queues,
    RequestId, Ticket, Traffic, WatchScope, WatchTracker, Withdrawn, Work,
};
use http::{HeaderName, HeaderValue, Response};
use tokio::sync::{Notify, oneshot};
use value::Str;

use crate::body::Body;
use crate::request_info::{Query, RequestInfo};
use crate::respond;
use crate::state::State;
pub(crate) use configure::{Followers, run};
pub(crate) use dump::page as dump_page;
pub(crate) use maintain::{begin, is_served, maintain};
pub(crate) use metrics::FlowControlMetrics;

/// No request waits longer in its queue.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// A request waits for this part of the time that it may take.
const WAIT_PART: u32 = 4;

static FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Limits requests by the stored FlowSchemas and PriorityLevelConfigurations.
pub struct FlowControl {
    /// The moment that all times are relative to.
    epoch: Instant,
    epoch_time: SystemTime,
    /// `--request-timeout`: what requests without a deadline of their own wait by.
    request_timeout: Duration,
    configured: Mutex<configure::Configured>,
    in_force: ArcSwap<InForce>,
    watches: Arc<WatchTracker>,
    traffic: Mutex<Traffic>,
    /// Something about the objects, their status or a level that is going has to be looked at.
    changed: Notify,
}

impl std::fmt::Debug for FlowControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FlowControl")
    }
}

/// The configuration of the moment, with what answers say about it.
struct InForce {
    configuration: Configuration<Waiter>,
    /// By the number of the class.
    uids: Vec<MatchedUids>,
}

/// The uids that an answer carries: those of the FlowSchema and PriorityLevelConfiguration of its request.
#[derive(Clone, Debug)]
pub struct MatchedUids {
    schema: HeaderValue,
    level: HeaderValue,
}

impl MatchedUids {
    fn of(class: &Class<Waiter>) -> Self {
        let value = |uid: &Str| HeaderValue::try_from(uid.as_str()).unwrap_or(HeaderValue::from_static(""));
        MatchedUids { schema: value(&class.schema.uid), level: value(&class.level_uid) }
    }

    /// Adds the headers. What another server said in them comes second.
    pub fn add_to(&self, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        for (name, value) in [(&FLOW_SCHEMA_UID, &self.schema), (&PRIORITY_LEVEL_UID, &self.level)] {
            if let Some(theirs) = headers.insert(name, value.clone()) {
                headers.append(name, theirs);
            }
        }
    }
}

/// A request in a queue set.
#[derive(Debug)]
pub(crate) struct Waiter {
    caller: Caller,
    info: Arc<RequestInfo>,
    wake: Option<oneshot::Sender<()>>,
}

impl Ticket for Waiter {
    fn dispatched(&mut self) {
        if let Some(wake) = self.wake.take() {
            // Whoever waited may be gone; dropping its seat gives it to the next.
            let _ = wake.send(());
        }
    }
}

/// A request that asks for a seat.
pub(crate) struct Asking<'a> {
    pub(crate) state: &'a State,
    pub(crate) caller: &'a Caller,
    pub(crate) info: &'a Arc<RequestInfo>,
    pub(crate) query: &'a Query,
    /// When it came in.
    pub(crate) arrived: Instant,
    /// When it must be answered, if there is a limit.
    pub(crate) deadline: Option<Instant>,
    /// Ends when the client is gone.
    pub(crate) gone: &'a mut ClientGone,
}

/// Tells whether a client still waits for its answer. A client of which nothing is known waits.
#[derive(Debug, Default)]
pub(crate) struct ClientGone(Option<oneshot::Receiver<()>>);

impl ClientGone {
    /// Ends when the sender is dropped.
    pub(crate) fn with(sender_lives: oneshot::Receiver<()>) -> Self {
        ClientGone(Some(sender_lives))
    }

    async fn wait(&mut self) {
        match &mut self.0 {
            Some(gone) => drop(gone.await),
            None => std::future::pending().await,
        }
    }
}

/// Why a request got no seat, as an answer.
pub(crate) struct Refused {
    uids: MatchedUids,
    retry_after: u64,
}

impl Refused {
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = respond::too_many_requests_after(self.retry_after);
        self.uids.add_to(&mut response);
        response
    }
}

impl FlowControl {
    /// Limits requests to `seats` at once, by the mandatory objects until others are followed.
    pub(crate) fn new(seats: usize, request_timeout: Duration) -> Arc<Self> {
        let mut controller = Controller::new(u32::try_from(seats).unwrap_or(u32::MAX), Duration::ZERO);
        let first = controller.configure(Duration::ZERO, Vec::new(), Vec::new());
        let mut traffic = Traffic::new(Duration::ZERO);
        let executing = u64::try_from(first.max_executing).unwrap_or_default();
        traffic.set_limits(Duration::ZERO, first.max_waiting, executing);
        Arc::new(FlowControl {
            epoch: Instant::now(),
            epoch_time: SystemTime::now(),
            request_timeout,
            configured: Mutex::new(configure::Configured::new(controller)),
            in_force: ArcSwap::from_pointee(InForce::of(first.configuration)),
            watches: Arc::default(),
            traffic: Mutex::new(traffic),
            changed: Notify::new(),
        })
    }

    /// The time as the crate sees it.
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most requests that executed in the last second: `(reading, mutating)`.
    pub(crate) fn executing(&self) -> (usize, usize) {
        self.most(Phase::Executing)
    }

    /// The most requests that waited in the last second: `(reading, mutating)`.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.most(Phase::Waiting)
    }

    fn most(&self, phase: Phase) -> (usize, usize) {
        let mut traffic = self.traffic();
        let mut most = |mutating| usize::try_from(traffic.watermark(phase, mutating)).unwrap_or_default();
        (most(false), most(true))
    }

    /// Classifies a request and waits for its seats.
    pub(crate) async fn admit(self: &Arc<Self>, asking: Asking<'_>) -> Result<FairSeat, Refused> {
        let Asking { state, caller, info, query, arrived, deadline, gone } = asking;
        let mut seat = {
            let in_force = self.in_force.load();
            let asked = attributes(caller, info);
            let index = in_force.configuration.index(&asked);
            let class = in_force.configuration.class(index);
            let (distinguisher, hash) = class.flow_of(&asked);
            let uids = in_force.uids.get(index).cloned().unwrap_or_else(|| MatchedUids::of(class));
            let (work, watches) = estimate::work(state, info, query, &self.watches, class.level.max_seats());
            FairSeat {
                control: Arc::clone(self),
                level: Arc::clone(&class.level),
                flow: class.flow,
                distinguisher: distinguisher.into(),
                hash,
                work,
                interested: watches,
                caller: caller.clone(),
                info: Arc::clone(info),
                wait_until: self.wait_until(arrived, deadline),
                request: None,
                is_executing: false,
                watch: None,
                uids,
            }
        };
        if seat.take(gone, false).await {
            if seat.info.verb == "watch" {
                seat.watch = estimate::watched(info).map(|scope| OpenWatch::begin(&self.watches, scope));
            }
            return Ok(seat);
        }
        Err(Refused { retry_after: seat.refused(), uids: seat.uids.clone() })
    }

    /// Until when a request waits in its queue.
    fn wait_until(&self, arrived: Instant, deadline: Option<Instant>) -> Instant {
        let allowed =
            deadline.map_or(self.request_timeout, |deadline| deadline.saturating_duration_since(arrived));
        let wait = (allowed / WAIT_PART).min(MAX_WAIT);
        arrived.checked_add(wait).unwrap_or(arrived)
    }
}

impl InForce {
    fn of(configuration: Configuration<Waiter>) -> Self {
        let uids =
            (0..configuration.len()).map(|index| MatchedUids::of(configuration.class(index))).collect();
        InForce { configuration, uids }
    }
}

/// A request as flow schemas see it.
fn attributes<'a>(caller: &'a Caller, info: &'a RequestInfo) -> Attributes<'a> {
    Attributes {
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

/// The seats of one request, given back when dropped.
#[derive(Debug)]
pub(crate) struct FairSeat {
    control: Arc<FlowControl>,
    level: Arc<Level<Waiter>>,
    flow: usize,
    distinguisher: Str,
    hash: u64,
    work: Work,
    /// How many watches hear of the request, where that was asked.
    interested: Option<usize>,
    caller: Caller,
    info: Arc<RequestInfo>,
    wait_until: Instant,
    /// The request in the level's queue set, while it waits or occupies seats.
    request: Option<RequestId>,
    is_executing: bool,
    watch: Option<OpenWatch>,
    uids: MatchedUids,
}

impl FairSeat {
    /// What the answer says about where the request went.
    pub(crate) fn uids(&self) -> &MatchedUids {
        &self.uids
    }

    /// Gives the seats up for the time being; a watch keeps being counted as one.
    pub(crate) fn release(&mut self) {
        if let Some(id) = self.request.take() {
            let (now, is_watch) = (self.control.now(), self.watch.is_some());
            let level = Arc::clone(&self.level);
            let mut queues = level.queues();
            // A watch that has begun is through.
            let finished = if is_watch { queues.finish(now, id) } else { queues.suspend(now, id) };
            self.after(queues, finished, id);
        }
    }

    /// Takes seats again, in the queues of the same flow. An error says in how many seconds the client should come back.
    pub(crate) async fn reacquire(&mut self) -> Result<(), u64> {
        if self.request.is_some() {
            return Ok(());
        }
        // It was admitted in time; how long it waits now is bounded by its own deadline and by what a new request would wait.
        let wait = (self.control.request_timeout / WAIT_PART).min(MAX_WAIT);
        self.wait_until = Instant::now().checked_add(wait).unwrap_or(self.wait_until);
        if self.take(&mut ClientGone::default(), true).await { Ok(()) } else { Err(self.refused()) }
    }

    /// Waits for seats; `false` if there are none in time.
    async fn take(&mut self, gone: &mut ClientGone, is_resumed: bool) -> bool {
        let now = self.control.now();
        let ticket = Waiter { caller: self.caller.clone(), info: Arc::clone(&self.info), wake: None };
        let arrival = Arrival {
            flow: self.flow,
            distinguisher: self.distinguisher.clone(),
            hash: self.hash,
            work: self.work,
            is_watch: self.info.verb == "watch",
            is_resumed,
            ticket,
        };
        let (dispatched, id) = {
            let mut queues = self.level.queues();
            if !is_resumed && let Some(flow) = queues.flow_mut(self.flow) {
                flow.estimated(&self.work, self.interested);
            }
            match queues.start(now, arrival) {
                Admission::Executing(id) => {
                    drop(queues);
                    self.begins(now, id);
                    return true;
                }
                Admission::Rejected(_) => return false,
                Admission::Waiting(id) => {
                    let (wake, dispatched) = oneshot::channel();
                    if let Some(ticket) = queues.ticket_mut(id) {
                        ticket.wake = Some(wake);
                    }
                    (dispatched, id)
                }
            }
        };
        self.request = Some(id);
        let mutating = !self.info.is_read_only();
        self.control.traffic().note(now, Phase::Waiting, mutating, 1);
        let waiting = WaitingNote { control: Arc::clone(&self.control), mutating };
        let is_dispatched = tokio::select! {
            biased;
            woken = dispatched => woken.is_ok(),
            () = tokio::time::sleep_until(self.wait_until.into()) => false,
            () = gone.wait() => false,
        };
        drop(waiting);
        let now = self.control.now();
        // It may have been dispatched at the last moment.
        if is_dispatched || self.level.queues().withdraw(now, id) == Withdrawn::Executing {
            self.begins(now, id);
            return true;
        }
        self.request = None;
        false
    }

    fn begins(&mut self, now: Duration, id: RequestId) {
        self.request = Some(id);
        self.is_executing = true;
        self.control.traffic().note(now, Phase::Executing, !self.info.is_read_only(), 1);
    }

    /// Counts a refusal; returns in how many seconds the client should come back.
    fn refused(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.level.refused(now.as_secs())
    }

    /// What is left to do after a request gave up its seats.
    fn after(&mut self, queues: Queues<'_, Waiter>, finished: Finished, id: RequestId) {
        drop(queues);
        let now = self.control.now();
        if std::mem::take(&mut self.is_executing) {
            self.control.traffic().note(now, Phase::Executing, !self.info.is_read_only(), -1);
        }
        if finished.idle && self.level.is_quiescing() {
            self.control.changed.notify_one();
        }
        let Some(linger) = finished.linger else { return };
        let (control, level) = (Arc::clone(&self.control), Arc::clone(&self.level));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(linger).await;
                level.queues().release(control.now(), id);
            })),
            Err(_) => level.queues().release(now, id),
        }
    }
}

impl Drop for FairSeat {
    fn drop(&mut self) {
        if let Some(id) = self.request.take() {
            let level = Arc::clone(&self.level);
            let mut queues = level.queues();
            let finished = queues.leave(self.control.now(), id);
            self.after(queues, finished, id);
        }
    }
}

/// Counts a request as waiting until it is dropped.
struct WaitingNote {
    control: Arc<FlowControl>,
    mutating: bool,
}

impl Drop for WaitingNote {
    fn drop(&mut self) {
        let now = self.control.now();
        self.control.traffic().note(now, Phase::Waiting, self.mutating, -1);
    }
}

/// A watch that is open, counted until it is dropped.
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
