//! API Priority and Fairness: the queueing stage of the request pipeline.
//!
//! The [`flowcontrol`] crate decides without I/O; this module supplies the time, the stored objects and the
//! requests, and suspends requests while they are queued.

mod configure;
mod dump;
mod estimate;
mod maintain;
mod metrics;
mod seat;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use authn::Caller;
use flowcontrol::{
    PerShard, PresentRequest, PresentRequests, PriorityLevelController, RequestArrival, RequestClass,
    RequestClassifier, RequestDigest, RequestPhase, RequestTicket, Traffic, WatchTracker,
};
use http::{HeaderName, HeaderValue, Response};
use tokio::sync::{Notify, oneshot};
use value::Str;

use crate::body::Body;
use crate::respond;
use crate::state::State;
pub(crate) use configure::{FlowControlInformers, run};
pub(crate) use dump::page as dump_page;
pub(crate) use maintain::{begin, is_served, maintain};
pub(crate) use metrics::FlowControlMetrics;
use requests::request_info::{Query, RequestInfo};
pub(crate) use seat::FairSeat;
use seat::{Hold, OpenWatch};

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
    /// The start of the clock for `flowcontrol`: all times passed to it are durations since then.
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
}

/// The current configuration, with the response headers of each class.
struct InForce {
    shared: Arc<FlowControlShared>,
    configuration: Arc<RequestClassifier<Waiter>>,
    /// Indexed like the classes of the configuration.
    uids: Vec<MatchedUids>,
}

/// Header values with the uids of a request's FlowSchema and PriorityLevelConfiguration.
#[derive(Clone, Debug)]
pub(crate) struct MatchedUids {
    schema: HeaderValue,
    level: HeaderValue,
}

impl MatchedUids {
    fn of(class: &RequestClass<Waiter>) -> Self {
        let value = |uid: &Str| HeaderValue::try_from(uid.as_str()).unwrap_or(HeaderValue::from_static(""));
        MatchedUids { schema: value(&class.schema.uid), level: value(&class.level_uid) }
    }

    /// Adds the two uid headers. Values set by an aggregated API server come after them.
    pub(crate) fn add_to(self, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        for (name, value) in [(&FLOW_SCHEMA_UID, self.schema), (&PRIORITY_LEVEL_UID, self.level)] {
            if let Some(theirs) = headers.insert(name, value) {
                headers.append(name, theirs);
            }
        }
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
    fn class(&self) -> &RequestClass<Waiter> {
        self.in_force.configuration.class(self.index)
    }

    fn shared(&self) -> &FlowControlShared {
        &self.in_force.shared
    }

    /// The values of the response's uid headers. They are copied before the request runs, which is cheaper than a second reference
    /// to the configuration.
    fn uids(&self) -> Option<MatchedUids> {
        self.in_force.uids.get(self.index).cloned()
    }
}

/// A request in a queue set, with the sender that wakes it.
#[derive(Debug)]
pub(crate) struct Waiter {
    caller: Caller,
    info: Arc<RequestInfo>,
    wake: Option<oneshot::Sender<()>>,
}

impl RequestTicket for Waiter {
    fn dispatched(&mut self) {
        if let Some(wake) = self.wake.take() {
            // If the waiting request is gone, dropping its seat dispatches the next one.
            let _ = wake.send(());
        }
    }
}

/// The data of a request that classify it and let it wait in a queue.
pub(crate) struct SeatRequest<'a> {
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

impl SeatRequest<'_> {
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
        if let Some(uids) = self.assignment.uids() {
            uids.add_to(&mut response);
        }
        response
    }
}

impl FlowControl {
    /// Limits requests to `seats` at once, using the mandatory objects until the stored ones are loaded.
    pub(crate) fn new(seats: usize, request_timeout: Duration) -> Arc<Self> {
        let mut controller =
            PriorityLevelController::new(u32::try_from(seats).unwrap_or(u32::MAX), Duration::ZERO);
        let first = controller.configure(Duration::ZERO, Vec::new(), Vec::<flowcontrol::FlowSchema>::new());
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
            in_force: ArcSwap::from_pointee(InForce::per_shard(&shared, first.classifier)),
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
        self.most(RequestPhase::Executing)
    }

    /// Maximum of queued requests in the last second: `(reading, mutating)`.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.most(RequestPhase::Waiting)
    }

    fn most(&self, phase: RequestPhase) -> (usize, usize) {
        let mut traffic = self.traffic();
        let mut most = |mutating| usize::try_from(traffic.watermark(phase, mutating)).unwrap_or_default();
        (most(false), most(true))
    }

    /// Classifies a request and waits for its seats.
    pub(crate) async fn admit(&self, request: SeatRequest<'_>) -> Result<FairSeat, FlowRejection> {
        let is_light = request.is_light();
        let SeatRequest { state, caller, info, query, arrived, deadline, has_body: _, gone } = request;
        let in_force = Arc::clone(self.in_force.load().get());
        let classifier = &in_force.configuration;
        let index = classifier.index_of_all(caller, info.is_resource);
        let index = index.unwrap_or_else(|| classifier.index(&request_digest(caller, info)));
        let assignment = Assignment { in_force, index };
        let class = assignment.class();
        if is_light && let Some(fast) = class.enter_fast_path(arrived, self.shared.present.estimate()) {
            return Ok(FairSeat::new(assignment, Hold::Fast(fast), true, gone));
        }
        let digest = request_digest(caller, info);
        let (distinguisher, hash) = class.flow_of(&digest);
        let (work, watches) = estimate::work(state, info, query, &self.watches, class.level.max_seats());
        let is_watch = info.verb == "watch";
        let ticket = Waiter { caller: caller.clone(), info: Arc::clone(info), wake: None };
        let arrival = RequestArrival {
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
            return Err(FlowRejection {
                retry_after: seat.count_rejection(),
                assignment: seat.assignment.clone(),
            });
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
        configuration: RequestClassifier<Waiter>,
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
fn request_digest<'a>(caller: &'a Caller, info: &'a RequestInfo) -> RequestDigest<'a> {
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
