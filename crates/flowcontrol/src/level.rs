//! Active priority levels, and the classifier of requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use authn::{Caller, User};
use value::Str;

use crate::SeatSeconds;
use crate::fast_path::{FastCounters, FastPath, SHORT};
use crate::flow_cache::{self, RuleOfClass};
use crate::flow_stats::{DispatchBounds, FlowStats};
use crate::objects::{CATCH_ALL, FlowSchema, RequestDigest, RuleExtent};
use crate::queueset::{LevelLoad, QueueSet, Queuing, RequestTicket};
use crate::retry::RetryAfter;
use crate::shard::{self, ShardIndex};
use crate::statistics::Histogram;

/// The locked queue set of a priority level.
pub type LockedQueueSet<'a, T> = MutexGuard<'a, QueueSet<T>>;

/// A priority level with its requests. Requests hold a reference until they end, even if its object is deleted meanwhile.
#[derive(Debug)]
pub struct ActiveLevel<T> {
    pub name: Str,
    queues: Mutex<QueueSet<T>>,
    fast: Arc<FastPath>,
    retry_after: Mutex<RetryAfter>,
    /// Maximum seats at which one request is estimated; zero means no limit.
    max_seats: AtomicU64,
    is_quiescing: AtomicBool,
}

/// The values of a level that metrics report.
#[derive(Clone, Debug)]
pub struct LevelReading {
    /// The virtual time `R` of the queue set.
    pub current_r: SeatSeconds,
    /// Bounds recorded at the last dispatch.
    pub dispatch: DispatchBounds,
    pub load: LevelLoad,
    /// Waiting requests as a fraction of the queues' capacity.
    pub waiting: Histogram,
    /// Executing requests as a fraction of the seats.
    pub executing: Histogram,
    /// Seats in use as a fraction of the seats.
    pub seats: Histogram,
    /// Seats demanded (in use or waited for) as a fraction of the seats.
    pub demand: Histogram,
    /// Statistics by flow schema.
    pub flows: Vec<FlowStats>,
}

impl<T: RequestTicket> ActiveLevel<T> {
    pub(crate) fn new(name: Str, queuing: Queuing, now: Duration) -> Self {
        let queues = QueueSet::new(queuing, now);
        ActiveLevel {
            name,
            fast: Arc::clone(queues.fast_path()),
            queues: Mutex::new(queues),
            retry_after: Mutex::default(),
            max_seats: AtomicU64::new(0),
            is_quiescing: AtomicBool::new(false),
        }
    }

    pub fn queues(&self) -> LockedQueueSet<'_, T> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maximum seats at which one of its requests is estimated; zero means no limit of its own.
    pub fn max_seats(&self) -> u64 {
        self.max_seats.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_seats(&self, seats: u64) {
        self.max_seats.store(seats, Ordering::Relaxed);
    }

    /// Reports whether its object was deleted, so that it is removed once it is idle.
    pub fn is_quiescing(&self) -> bool {
        self.is_quiescing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_quiescing(&self, is: bool) {
        self.is_quiescing.store(is, Ordering::Relaxed);
    }

    /// Records a rejected request at this Unix time in seconds. Returns the value of `Retry-After` in seconds.
    pub fn record_rejection(&self, second: u64) -> u64 {
        self.retry_after.lock().unwrap_or_else(PoisonError::into_inner).record_rejection(second)
    }

    /// Reads the values for metrics.
    pub fn read(&self, now: Duration) -> LevelReading {
        let mut queues = self.queues();
        queues.note_fast_use(now);
        queues.take_fast_counts();
        let (current_r, load, flows) = (queues.current_r(), queues.load(), queues.flows().to_vec());
        let gauges = &mut queues.gauges;
        LevelReading {
            current_r,
            dispatch: gauges.dispatch,
            load,
            waiting: gauges.waiting.read(now),
            executing: gauges.executing.read(now),
            seats: gauges.seats.read(now),
            demand: gauges.demand.read(now),
            flows,
        }
    }
}

/// A flow schema with the priority level of its requests.
#[derive(Debug)]
pub struct RequestClass<T> {
    pub schema: Arc<FlowSchema>,
    pub level: Arc<ActiveLevel<T>>,
    /// The UID of the level's object.
    pub level_uid: Str,
    /// Index of the flow schema in the level's queue set.
    pub flow: usize,
    pub(crate) fast: Arc<FastCounters>,
    /// Requests of this class are never limited.
    pub is_exempt: bool,
    /// The level has more than one queue, so that flows matter.
    pub(crate) has_flows: bool,
}

impl<T> RequestClass<T> {
    /// The flow distinguisher of a request, and the hash that selects its queue.
    pub fn flow_of<'a>(&self, attributes: &RequestDigest<'a>) -> (&'a str, u64) {
        if !self.has_flows {
            return ("", 0);
        }
        let distinguisher = self.schema.distinguisher.of(attributes);
        (distinguisher, flow_cache::flow_hash(&self.schema.name, distinguisher))
    }
}

/// A seat on the fast path ([`RequestClass::enter_fast_path`]).
#[derive(Debug)]
#[must_use = "the seat is occupied until it is given back to `Class::leave_fast_path`"]
pub struct FastSeat {
    shard: ShardIndex,
    started: Instant,
}

impl<T: RequestTicket> RequestClass<T> {
    /// Takes one seat for a read request that is not a watch, without locking the queues. `None` if the request must go through them
    /// ([`QueueSet::start`]). `present` is the number of requests in the server.
    pub fn enter_fast_path(&self, now: Instant, present: u64) -> Option<FastSeat> {
        let shard = shard::shard();
        if !self.level.fast.enter(shard, present) {
            return None;
        }
        self.fast.start(shard);
        Some(FastSeat { shard, started: now })
    }

    /// Gives back a seat of the fast path. The times that [`QueueSet`] gets are relative to `epoch`.
    #[expect(clippy::needless_pass_by_value, reason = "a seat is given back once")]
    pub fn leave_fast_path(&self, now: Instant, seat: FastSeat, epoch: Instant) {
        let FastSeat { shard, started } = seat;
        let took = now.saturating_duration_since(started);
        if took <= SHORT {
            self.fast.finish(shard, took);
        } else {
            self.level.queues().finished_on_fast_path(self.flow, took);
        }
        if self.level.fast.leave(shard, took) {
            self.level.queues().left_fast_path(now.saturating_duration_since(epoch));
        }
    }
}

/// The flow schemas in effect, in the order they are matched.
#[derive(Debug)]
pub struct RequestClassifier<T> {
    /// Unique within the process.
    number: u64,
    pub(crate) classes: Vec<RequestClass<T>>,
    pub(crate) catch_all: RequestClass<T>,
}

/// The number of the next classifier.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl<T> RequestClassifier<T> {
    pub(crate) fn new(classes: Vec<RequestClass<T>>, catch_all: RequestClass<T>) -> Self {
        RequestClassifier { number: NEXT.fetch_add(1, Ordering::Relaxed), classes, catch_all }
    }

    /// Returns the class of the first flow schema that matches a request.
    pub fn classify(&self, attributes: &RequestDigest<'_>) -> &RequestClass<T> {
        self.class(self.index(attributes))
    }

    /// The index of the class to which all requests of a caller for resources belong, or all others. `None` if it depends on the request.
    pub fn index_of_all(&self, caller: &Caller, is_resource: bool) -> Option<usize> {
        let classes = flow_cache::classes_of_all(self.number, caller, || {
            let rules = self.rules_for(caller.user());
            [true, false].map(|is_resource| self.class_of_all(&rules, is_resource))
        });
        if is_resource { classes[0] } else { classes[1] }
    }

    /// The class of the first rule that matches any of these requests, if it matches all of them.
    fn class_of_all(&self, rules: &[RuleOfClass], is_resource: bool) -> Option<usize> {
        let extent = |found: &RuleOfClass| {
            let class = self.classes.get(found.class);
            class.map_or(RuleExtent::None, |class| class.schema.extent(found.rule, is_resource))
        };
        let first = rules.iter().find(|found| extent(found) != RuleExtent::None)?;
        (extent(first) == RuleExtent::All).then_some(first.class)
    }

    /// Like [`RequestClassifier::classify`], but returns an index below [`RequestClassifier::len`].
    pub fn index(&self, attributes: &RequestDigest<'_>) -> usize {
        let find = || self.rules_for(attributes.user);
        let matching = flow_cache::with_rules(self.number, attributes.user, find, |rules| {
            let covers = |found: &&RuleOfClass| {
                self.classes.get(found.class).is_some_and(|class| class.schema.covers(found.rule, attributes))
            };
            rules.iter().find(covers).map(|found| found.class)
        });
        // Only a user in neither `system:authenticated` nor `system:unauthenticated` can match no schema.
        matching
            .or_else(|| self.classes.iter().position(|class| class.schema.name == CATCH_ALL))
            .unwrap_or(self.classes.len())
    }

    /// The rules that match a user by name or group, in order.
    fn rules_for(&self, user: &User) -> Vec<RuleOfClass> {
        let classes = self.classes.iter().enumerate();
        let rules = classes.flat_map(|(class, found)| {
            found.schema.rules_for(user).map(move |rule| RuleOfClass { class, rule })
        });
        rules.collect()
    }

    /// The class with this index; the catch-all class if there is none.
    pub fn class(&self, index: usize) -> &RequestClass<T> {
        self.classes.get(index).unwrap_or(&self.catch_all)
    }

    /// Number of classes, including the catch-all.
    pub fn len(&self) -> usize {
        self.classes.len() + 1
    }

    /// Always false, because there is a catch-all class.
    pub fn is_empty(&self) -> bool {
        false
    }
}
