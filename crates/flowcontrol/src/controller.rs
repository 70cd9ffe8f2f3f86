//! [`PriorityLevelController`]: builds the classifier of requests from the stored objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use value::Str;

use crate::bootstrap;
use crate::demand::{self, LevelLimits};
use crate::level::{ActiveLevel, RequestClass, RequestClassifier};
use crate::objects::{CATCH_ALL, DanglingCondition, EXEMPT, FlowSchema, PriorityLevel};
use crate::queueset::{Queuing, RequestTicket};

/// Owns the priority levels and the division of seats among them.
#[derive(Debug)]
pub struct PriorityLevelController<T> {
    /// Total seats of all levels.
    seats: u32,
    levels: BTreeMap<Str, PriorityLevelState<T>>,
    fair_fraction: f64,
}

#[derive(Debug)]
struct PriorityLevelState<T> {
    level: Arc<ActiveLevel<T>>,
    object: PriorityLevel,
    limits: LevelLimits,
    /// The level has been given its initial seats.
    has_begun: bool,
}

/// A FlowSchema whose `Dangling` condition must be updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Name of the FlowSchema.
    pub schema: Str,
    /// The correct value of its `Dangling` condition.
    pub condition: DanglingCondition,
}

/// The result of [`PriorityLevelController::configure`].
#[derive(Debug)]
pub struct AppliedConfiguration<T> {
    /// Classifies requests from now on.
    pub classifier: RequestClassifier<T>,
    /// Conditions to write to FlowSchemas.
    pub updates: Vec<StatusUpdate>,
    /// Total capacity of all queues, in requests.
    pub max_waiting: u64,
    /// Total nominal seats of all levels.
    pub max_executing: i64,
}

impl<T: RequestTicket> PriorityLevelController<T> {
    /// A server with this many seats and only the mandatory levels.
    pub fn new(seats: u32, now: Duration) -> Self {
        let mut controller = PriorityLevelController { seats, levels: BTreeMap::new(), fair_fraction: 0.0 };
        controller.configure(now, Vec::new(), Vec::<FlowSchema>::new());
        controller
    }

    /// Applies all objects. A level whose object was deleted stays until its last request ends; a FlowSchema whose level does not exist has
    /// no effect.
    pub fn configure(
        &mut self,
        now: Duration,
        levels: Vec<PriorityLevel>,
        schemas: Vec<impl Into<Arc<FlowSchema>>>,
    ) -> AppliedConfiguration<T> {
        let mut schemas: Vec<Arc<FlowSchema>> = schemas.into_iter().map(Into::into).collect();
        let mut wanted: BTreeMap<Str, PriorityLevel> =
            levels.into_iter().map(|level| (level.name.clone(), level)).collect();
        let updates = schemas.iter().filter_map(|schema| {
            let condition = DanglingCondition::of(&schema.level, wanted.contains_key(&schema.level));
            (schema.dangling.as_ref() != Some(&condition))
                .then(|| StatusUpdate { schema: schema.name.clone(), condition })
        });
        let updates = updates.collect();
        schemas.retain(|schema| wanted.contains_key(&schema.level));

        self.retire(&mut wanted);
        for (name, object) in wanted {
            let state = self.levels.entry(name).or_insert_with(|| PriorityLevelState {
                level: Arc::new(ActiveLevel::new(object.name.clone(), object.queuing, now)),
                object: object.clone(),
                limits: LevelLimits::default(),
                has_begun: false,
            });
            state.level.set_quiescing(false);
            state.object = object;
        }
        self.share();
        self.divide(now);

        let max_waiting = self.levels.values().map(|state| match state.object.queuing {
            Queuing::Queue { queues, length_limit, .. } => u64::from(queues) * u64::from(length_limit),
            _ => 0,
        });
        AppliedConfiguration {
            max_waiting: max_waiting.sum(),
            max_executing: self.levels.values().map(|state| state.limits.nominal).sum(),
            classifier: self.classes(schemas),
            updates,
        }
    }

    /// Handles levels without an object: the mandatory ones stay or are recreated, the others are removed once they are idle.
    fn retire(&mut self, wanted: &mut BTreeMap<Str, PriorityLevel>) {
        self.levels.retain(|name, state| {
            let is_mandatory = matches!(name.as_str(), EXEMPT | CATCH_ALL);
            if wanted.contains_key(name) || is_mandatory {
                return true;
            }
            state.level.set_quiescing(true);
            !state.level.queues().is_idle()
        });
        for imagined in [bootstrap::exempt_level(), bootstrap::catch_all_level()] {
            let name = api::meta::name(&imagined);
            if !wanted.contains_key(name)
                && !self.levels.contains_key(name)
                && let Ok(level) = PriorityLevel::read(&imagined)
            {
                wanted.insert(level.name.clone(), level);
            }
        }
    }

    /// Computes every level's limits from the shares of all levels.
    fn share(&mut self) {
        let all: f64 = self.levels.values().map(|state| f64::from(state.object.shares)).sum();
        for state in self.levels.values_mut() {
            state.limits.share(&state.object, self.seats, all);
            if let Some(hand) = state.object.hand_size {
                state.level.set_max_seats(state.limits.max_seats(hand));
            }
            if !state.has_begun {
                state.has_begun = true;
                state.limits.begin();
            }
        }
    }

    /// Moves seats to the levels that need them. Call it every [`ADJUSTMENT_PERIOD`](crate::ADJUSTMENT_PERIOD).
    pub fn adjust(&mut self, now: Duration) {
        self.divide(now);
    }

    fn divide(&mut self, now: Duration) {
        for state in self.levels.values_mut() {
            let period = state.level.queues().end_period(now);
            state.limits.observe(period);
        }
        let mut limits: Vec<(bool, &mut LevelLimits)> =
            self.levels.values_mut().map(|state| (state.object.is_exempt(), &mut state.limits)).collect();
        self.fair_fraction = demand::divide(&mut limits);
        for state in self.levels.values() {
            let limit = u64::try_from(state.limits.current).unwrap_or_default();
            // For a level without seats, metrics are relative to a tenth of the server's seats.
            let denominator = if limit > 0 { limit } else { u64::from(self.seats.div_ceil(10).max(1)) };
            state.level.queues().configure(now, state.object.queuing, limit, denominator);
        }
    }

    /// Sorts the schemas by precedence, then name, and adds missing mandatory ones at the start and the end.
    fn classes(&self, mut schemas: Vec<Arc<FlowSchema>>) -> RequestClassifier<T> {
        for state in self.levels.values() {
            state.level.queues().retire_flows();
        }
        schemas.sort_by(|a, b| a.precedence.cmp(&b.precedence).then_with(|| a.name.cmp(&b.name)));
        let has = |name: &str| schemas.iter().any(|schema| schema.name == name);
        let (has_exempt, has_catch_all) = (has(EXEMPT), has(CATCH_ALL));
        let mandatory = |missing: bool, object: fn() -> value::Value| {
            (!missing).then(|| Arc::new(FlowSchema::read(&object()))).into_iter()
        };
        let all = mandatory(has_exempt, bootstrap::exempt_schema)
            .chain(schemas)
            .chain(mandatory(has_catch_all, bootstrap::catch_all_schema));
        let classes = all.filter_map(|schema| self.class(schema)).collect();
        let fallback = Arc::new(FlowSchema::read(&bootstrap::catch_all_schema()));
        let catch_all = self.class(Arc::clone(&fallback)).unwrap_or_else(|| {
            let level = Arc::new(ActiveLevel::new(CATCH_ALL.into(), Queuing::Reject, Duration::ZERO));
            let flow = level.queues().flow(CATCH_ALL);
            let fast = level.queues().fast_counters(flow);
            let uid = Str::default();
            RequestClass {
                schema: fallback,
                level,
                level_uid: uid,
                flow,
                fast,
                is_exempt: false,
                has_flows: false,
            }
        });
        RequestClassifier::new(classes, catch_all)
    }

    fn class(&self, schema: Arc<FlowSchema>) -> Option<RequestClass<T>> {
        let state = self.levels.get(&schema.level)?;
        let has_flows = matches!(state.object.queuing, Queuing::Queue { queues, .. } if queues > 1);
        let flow = state.level.queues().flow(&schema.name);
        let fast = state.level.queues().fast_counters(flow);
        Some(RequestClass {
            level: Arc::clone(&state.level),
            level_uid: state.object.uid.clone(),
            flow,
            fast,
            is_exempt: state.object.is_exempt(),
            has_flows,
            schema,
        })
    }

    /// Every level with its limits, sorted by name.
    pub fn levels(&self) -> impl Iterator<Item = (&Arc<ActiveLevel<T>>, &LevelLimits)> {
        self.levels.values().map(|state| (&state.level, &state.limits))
    }

    /// The fraction of its target that each level got unless a bound applied.
    pub fn fair_fraction(&self) -> f64 {
        self.fair_fraction
    }
}

#[cfg(test)]
mod tests;
