//! Applies stored flow control objects, writes FlowSchema status, and adjusts the seats of levels.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use api::Status;
use api::groups::FLOW_CONTROL;
use authn::InternalIdentity;
use catalog::keys;
use catalog::unreadable::Unreadable;
use flowcontrol::bootstrap::FlowControlKind;
use flowcontrol::{
    ADJUSTMENT_PERIOD, DanglingCondition, FlowSchema, PriorityLevel, PriorityLevelController, StatusUpdate,
};
use http::Method;
use storage::Store;
use tokio::sync::watch;
use tracing::warn;
use value::{Str, Value};

use super::{FlowControl, InForce, Waiter};
use crate::client::LoopbackClient;
use crate::informer::{InformerProgress, UnreadableConcern, start_informer};
use crate::state::State;

/// Field manager of status writes.
const FIELD_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Limit of status writes per FlowSchema in [`STATUS_PERIOD`], so that disagreeing servers do not fight
/// endlessly.
const MAX_STATUS_WRITES: usize = 6;
const STATUS_PERIOD: Duration = Duration::from_mins(1);
/// Delay before a failed status write is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The stored objects by name, and the controller configured from them.
pub(super) struct FlowControlObjects {
    pub(super) controller: PriorityLevelController<Waiter>,
    levels: BTreeMap<Str, PriorityLevel>,
    schemas: BTreeMap<Str, Arc<FlowSchema>>,
    /// Pending status conditions by FlowSchema.
    updates: BTreeMap<Str, DanglingCondition>,
}

impl FlowControlObjects {
    pub(super) fn new(controller: PriorityLevelController<Waiter>) -> Self {
        FlowControlObjects {
            controller,
            levels: BTreeMap::new(),
            schemas: BTreeMap::new(),
            updates: BTreeMap::new(),
        }
    }
}

/// Progress of the informers for both kinds.
pub(crate) struct FlowControlInformers {
    levels: InformerProgress,
    schemas: InformerProgress,
}

impl FlowControlInformers {
    /// Starts the informers. Objects that are already stored are in effect when this returns.
    pub(crate) fn start(control: &Arc<FlowControl>, store: &Store, unreadable: &Arc<Unreadable>) -> Self {
        let follow_kind = |prefix, kind: FlowControlKind| {
            // Requests without their FlowSchema fall to the catch-all level: a missing object never permits
            // more.
            let (notes, control) = (UnreadableConcern::without_concern(unreadable), Arc::clone(control));
            start_informer(store, prefix, notes, move |old, new| control.object_changed(kind, old, new))
        };
        FlowControlInformers {
            levels: follow_kind(keys::PRIORITY_LEVELS, FlowControlKind::PriorityLevel),
            schemas: follow_kind(keys::FLOW_SCHEMAS, FlowControlKind::FlowSchema),
        }
    }

    /// Waits until an object of `resource` written at `revision` is in effect.
    pub(crate) async fn reached(&self, resource: &str, revision: u64) {
        if resource == FlowControlKind::FlowSchema.plural() {
            self.schemas.reached(revision).await;
        } else {
            self.levels.reached(revision).await;
        }
    }
}

impl FlowControl {
    pub(super) fn configured(&self) -> MutexGuard<'_, FlowControlObjects> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current time in seconds since the Unix epoch.
    fn unix_time(&self) -> i64 {
        let at = self.epoch_time.checked_add(self.now()).unwrap_or(self.epoch_time);
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    pub(super) fn object_changed(&self, kind: FlowControlKind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let same = |field: &str| old.and_then(|old| old.get(field)) == new.and_then(|new| new.get(field));
        let uid = |object: Option<&Value>| object.map(|object| Str::from(api::meta::uid(object)));
        if old.is_some() && uid(old) == uid(new) && same("spec") && same("status") {
            return;
        }
        let name = Str::from(api::meta::name(object));
        let mut configured = self.configured();
        match (kind, new) {
            (FlowControlKind::FlowSchema, Some(new)) => {
                drop(configured.schemas.insert(name, Arc::new(FlowSchema::read(new))));
            }
            (FlowControlKind::FlowSchema, None) => drop(configured.schemas.remove(&name)),
            (FlowControlKind::PriorityLevel, new) => match new.map(PriorityLevel::read) {
                Some(Ok(level)) => drop(configured.levels.insert(name, level)),
                Some(Err(why)) => {
                    warn!(
                        name = name.as_str(),
                        error = why,
                        "ignoring an invalid PriorityLevelConfiguration; correct or delete it"
                    );
                    configured.levels.remove(&name);
                }
                None => drop(configured.levels.remove(&name)),
            },
        }
        self.put_in_force(&mut configured);
    }

    /// Recomputes the configuration from all objects.
    fn put_in_force(&self, configured: &mut FlowControlObjects) {
        let now = self.now();
        let levels = configured.levels.values().cloned().collect();
        let schemas = configured.schemas.values().cloned().collect();
        let changed = configured.controller.configure(now, levels, schemas);
        let executing = u64::try_from(changed.max_executing).unwrap_or_default();
        self.traffic().set_limits(now, changed.max_waiting, executing);
        self.in_force.store(Arc::new(InForce::per_shard(&self.shared, changed.classifier)));
        configured.updates = changed
            .updates
            .into_iter()
            .map(|StatusUpdate { schema, condition }| (schema, condition))
            .collect();
        if !configured.updates.is_empty() {
            self.shared.changed.notify_one();
        }
    }
}

/// Adjusts seats between levels, removes drained levels and writes FlowSchema status, until the server stops.
pub(crate) async fn run(state: Arc<State>, control: Arc<FlowControl>, mut stop: watch::Receiver<bool>) {
    let client = LoopbackClient::new(state, InternalIdentity::ApiServer);
    let mut writes: BTreeMap<Str, VecDeque<Instant>> = BTreeMap::new();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut adjusted = control.now();
    let mut retry_at = None;
    loop {
        tokio::select! {
            _ = second.tick() => {
                control.note_fast_paths(&control.configured());
                control.traffic().tick();
                let now = control.now();
                if now.saturating_sub(adjusted) >= ADJUSTMENT_PERIOD {
                    adjusted = now;
                    control.configured().controller.adjust(now);
                }
                if retry_at.is_none_or(|at| at > now) {
                    continue;
                }
            }
            () = control.shared.changed.notified() => {
                let mut configured = control.configured();
                if configured.controller.levels().any(|(level, _)| level.is_quiescing()) {
                    control.put_in_force(&mut configured);
                }
            }
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let failed = write_statuses(&control, &client, &mut writes).await;
        retry_at = failed.then(|| control.now() + RETRY);
    }
}

/// Writes pending FlowSchema conditions; `true` if some could not be written yet.
async fn write_statuses(
    control: &FlowControl,
    client: &LoopbackClient,
    writes: &mut BTreeMap<Str, VecDeque<Instant>>,
) -> bool {
    let updates = std::mem::take(&mut control.configured().updates);
    let mut postponed = BTreeMap::new();
    let now = Instant::now();
    writes.retain(|_, times| times.back().is_some_and(|last| now.duration_since(*last) < STATUS_PERIOD));
    for (schema, condition) in updates {
        let times = writes.entry(schema.clone()).or_default();
        while times.front().is_some_and(|first| now.duration_since(*first) >= STATUS_PERIOD) {
            times.pop_front();
        }
        if times.len() >= MAX_STATUS_WRITES {
            postponed.insert(schema, condition);
            continue;
        }
        times.push_back(now);
        match write_status(client, &schema, &condition, control.unix_time()).await {
            Ok(()) => {}
            // The FlowSchema is deleted, and the informer will report that.
            Err(status) if status.code() == 404 => {}
            Err(status) => {
                warn!(
                    schema = schema.as_str(),
                    error = status.message(),
                    "cannot write the status of a FlowSchema; retrying"
                );
                postponed.insert(schema, condition);
            }
        }
    }
    let failed = !postponed.is_empty();
    let mut configured = control.configured();
    for (schema, condition) in postponed {
        // A condition decided in the meantime takes precedence.
        if configured.schemas.contains_key(&schema) {
            configured.updates.entry(schema).or_insert(condition);
        }
    }
    failed
}

async fn write_status(
    client: &LoopbackClient,
    schema: &str,
    condition: &DanglingCondition,
    now: i64,
) -> Result<(), Status> {
    let now = api::time::Timestamp::from_seconds(now).time();
    let condition = Value::map([
        ("lastTransitionTime", Value::from(now)),
        ("message", condition.message.clone().into()),
        ("reason", condition.reason.clone().into()),
        ("status", condition.status.clone().into()),
        ("type", "Dangling".into()),
    ]);
    let mut configuration = Value::map([
        ("apiVersion", Value::from(format!("{FLOW_CONTROL}/v1"))),
        ("kind", "FlowSchema".into()),
        ("metadata", Value::map([("name", schema)])),
    ]);
    configuration.set_at(&["status", "conditions"], Value::list([condition]));
    let target = format!(
        "/apis/{FLOW_CONTROL}/v1/{}/{schema}/status?fieldManager={FIELD_MANAGER}&force=true",
        FlowControlKind::FlowSchema.plural()
    );
    let apply = "application/apply-patch+yaml";
    client.request(Method::PATCH, &target, apply, Some(&configuration)).await.map(drop)
}
