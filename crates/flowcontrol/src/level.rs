//! Priority levels while they are in use, and the configuration that requests are classified by.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use authn::User;
use value::Str;

use crate::SeatSeconds;
use crate::fast_path::{self, FastCounters, FastPath, SHORT, Shard};
use crate::flow_stats::{DispatchBounds, FlowStats};
use crate::known::{self, RuleOfClass};
use crate::objects::{Attributes, CATCH_ALL, FlowSchema};
use crate::queueset::{Load, QueueSet, Queuing, Ticket};
use crate::retry::RetryAfter;
use crate::statistics::Histogram;

/// A priority level's queues, locked.
pub type Queues<'a, T> = MutexGuard<'a, QueueSet<T>>;

/// A priority level with its requests. Requests keep it for as long as they take, even if its object is deleted meanwhile.
#[derive(Debug)]
pub struct Level<T> {
    /// Its name.
    pub name: Str,
    queues: Mutex<QueueSet<T>>,
    fast: Arc<FastPath>,
    retry_after: Mutex<RetryAfter>,
    /// The most seats that one request is estimated at; zero is no limit.
    max_seats: AtomicU64,
    is_quiescing: AtomicBool,
}

/// What metrics show of a level.
#[derive(Clone, Debug)]
pub struct LevelReading {
    /// The virtual time.
    pub current_r: SeatSeconds,
    /// The last dispatch.
    pub dispatch: DispatchBounds,
    /// Where it stands.
    pub load: Load,
    /// Waiting requests, as a part of the queues' capacity.
    pub waiting: Histogram,
    /// Executing requests, as a part of the seats.
    pub executing: Histogram,
    /// Seats in use, as a part of the seats.
    pub seats: Histogram,
    /// Seats that could be used, as a part of the seats.
    pub demand: Histogram,
    /// What was counted by flow schema.
    pub flows: Vec<FlowStats>,
}

impl<T: Ticket> Level<T> {
    pub(crate) fn new(name: Str, queuing: Queuing, now: Duration) -> Self {
        let queues = QueueSet::new(queuing, now);
        Level {
            name,
            fast: Arc::clone(queues.fast_path()),
            queues: Mutex::new(queues),
            retry_after: Mutex::default(),
            max_seats: AtomicU64::new(0),
            is_quiescing: AtomicBool::new(false),
        }
    }

    /// Its queues.
    pub fn queues(&self) -> Queues<'_, T> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most seats that one of its requests is estimated at; zero is no limit of its own.
    pub fn max_seats(&self) -> u64 {
        self.max_seats.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_seats(&self, seats: u64) {
        self.max_seats.store(seats, Ordering::Relaxed);
    }

    /// Whether its object is gone, and it goes too as soon as it is idle.
    pub fn is_quiescing(&self) -> bool {
        self.is_quiescing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_quiescing(&self, is: bool) {
        self.is_quiescing.store(is, Ordering::Relaxed);
    }

    /// A request was refused at this second since the epoch. Returns in how many seconds its client should come back.
    pub fn refused(&self, second: u64) -> u64 {
        self.retry_after.lock().unwrap_or_else(PoisonError::into_inner).refused(second)
    }

    /// What metrics show of it.
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

/// Where the requests of a flow schema go.
#[derive(Debug)]
pub struct Class<T> {
    /// The flow schema.
    pub schema: FlowSchema,
    /// Its priority level.
    pub level: Arc<Level<T>>,
    /// The uid of the level's object.
    pub level_uid: Str,
    /// The number of the flow schema in the level's queue set.
    pub flow: usize,
    pub(crate) fast: Arc<FastCounters>,
    /// Whether its requests are never limited.
    pub is_exempt: bool,
    /// Whether the level has more than one queue, so that flows matter.
    pub(crate) has_flows: bool,
}

impl<T> Class<T> {
    /// The flow distinguisher of a request, and the hash that its queue is chosen by.
    pub fn flow_of<'a>(&self, attributes: &Attributes<'a>) -> (&'a str, u64) {
        if !self.has_flows {
            return ("", 0);
        }
        let distinguisher = self.schema.distinguisher.of(attributes);
        (distinguisher, known::flow_hash(&self.schema.name, distinguisher))
    }
}

/// A seat on the fast path ([`Class::enter_fast_path`]).
#[derive(Debug)]
#[must_use = "the seat is occupied until it is given back to `Class::leave_fast_path`"]
pub struct FastSeat {
    shard: Shard,
    started: Duration,
}

impl<T: Ticket> Class<T> {
    /// Takes one seat for a read request that is no watch, without looking at the queues. `None` if it has to go through them
    /// ([`QueueSet::start`]). `present` is how many requests the server has.
    pub fn enter_fast_path(&self, now: Duration, present: u64) -> Option<FastSeat> {
        let shard = fast_path::shard();
        if !self.level.fast.enter(shard, present) {
            return None;
        }
        self.fast.start(shard);
        Some(FastSeat { shard, started: now })
    }

    /// Gives a seat back.
    #[expect(clippy::needless_pass_by_value, reason = "a seat is given back once")]
    pub fn leave_fast_path(&self, now: Duration, seat: FastSeat) {
        let FastSeat { shard, started } = seat;
        let took = now.saturating_sub(started);
        if took <= SHORT {
            self.fast.finish(shard, took);
        } else {
            self.level.queues().finished_on_fast_path(self.flow, took);
        }
        if self.level.fast.leave(shard, took) {
            self.level.queues().left_fast_path(now);
        }
    }
}

/// The flow schemas in force, in the order they are tried.
#[derive(Debug)]
pub struct Configuration<T> {
    /// No two configurations of a process have the same.
    number: u64,
    pub(crate) classes: Vec<Class<T>>,
    pub(crate) catch_all: Class<T>,
}

/// The number of the next configuration.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl<T> Configuration<T> {
    pub(crate) fn new(classes: Vec<Class<T>>, catch_all: Class<T>) -> Self {
        Configuration { number: NEXT.fetch_add(1, Ordering::Relaxed), classes, catch_all }
    }

    /// Where a request goes: to the first flow schema that matches it.
    pub fn classify(&self, attributes: &Attributes<'_>) -> &Class<T> {
        self.class(self.index(attributes))
    }

    /// As [`Configuration::classify`], as a number below [`Configuration::len`].
    pub fn index(&self, attributes: &Attributes<'_>) -> usize {
        let find = || self.rules_for(attributes.user);
        let matching = known::with_rules(self.number, attributes.user, find, |rules| {
            let covers = |found: &&RuleOfClass| {
                self.classes.get(found.class).is_some_and(|class| class.schema.covers(found.rule, attributes))
            };
            rules.iter().find(covers).map(|found| found.class)
        });
        // A user who is in neither of the two groups of everybody matches nothing.
        matching
            .or_else(|| self.classes.iter().position(|class| class.schema.name == CATCH_ALL))
            .unwrap_or(self.classes.len())
    }

    /// The rules that name a user, or a group of the user, in the order they are tried.
    fn rules_for(&self, user: &User) -> Vec<RuleOfClass> {
        let classes = self.classes.iter().enumerate();
        let rules = classes.flat_map(|(class, found)| {
            found.schema.rules_for(user).map(move |rule| RuleOfClass { class, rule })
        });
        rules.collect()
    }

    /// A class by its number; an unknown one is the catch-all class.
    pub fn class(&self, index: usize) -> &Class<T> {
        self.classes.get(index).unwrap_or(&self.catch_all)
    }

    /// How many classes there are.
    pub fn len(&self) -> usize {
        self.classes.len() + 1
    }

    /// There is always one.
    pub fn is_empty(&self) -> bool {
        false
    }
}
