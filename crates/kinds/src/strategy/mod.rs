//! Strategies: preparation of an object for a create or an update, after mutating admission and before validation.
//!
//! Each stored kind has one [`Strategy`], which the kind's row names ([`crate::table`]). It decides what happens to a
//! client's `status`, which changes increment `metadata.generation`, which metadata a status update may change, and which
//! steps of the kind run. Steps common to all kinds (uid, creation time, name generation) belong to the request pipeline.

mod binding;
mod certificates;
mod gates;
mod pod;
mod reset;
mod resource;
mod scheduling;
pub mod service;
mod storage;
pub(crate) mod table;

use api::features::Features;
use value::Value;

use api::validation::fields::{Read, same};

pub use binding::assign_pod;
pub(crate) use pod::{app_armor_profile, deprecated_app_armor_annotations};
pub use pod::{prepare_ephemeral_containers, prepare_resize};
pub use reset::{custom_reset_fields, reset_fields};
pub use resource::drop_admin_access;

/// User info of the caller, which a `CertificateSigningRequest` records.
#[derive(Clone, Debug, Default)]
pub struct RequestUserInfo {
    pub username: String,
    /// Empty for most authenticators.
    pub uid: String,
    pub groups: Vec<String>,
    /// Extra attributes from the authenticator.
    pub extra: Vec<(String, Vec<String>)>,
}

/// Input of a strategy besides the object.
#[derive(Clone, Debug, Default)]
pub struct StrategyContext {
    /// Time of the request in the format of `metadata.creationTimestamp` (`2006-01-02T15:04:05Z`).
    pub now: String,
    pub caller: RequestUserInfo,
    pub features: Features,
}

impl StrategyContext {
    /// Time of the request as a field value; null if unknown.
    fn time(&self) -> Value {
        if self.now.is_empty() { Value::Null } else { self.now.as_str().into() }
    }
}

/// Default propagation policy for dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are garbage-collected after the owner is gone.
    Background,
    /// Dependents stay, without the owner reference.
    Orphan,
    /// The kind takes no part in garbage collection.
    Unsupported,
}

/// Create, update and delete behavior of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Strategy {
    status: StatusHandling,
    generation: Generation,
    /// True if changes to fields that a disabled gate drops also increment the generation.
    counts_dropped: bool,
    metadata: MetadataOnStatus,
    gates: &'static [gates::Gate],
    features: &'static [gates::FeatureFields],
    create: fn(&mut Value, &StrategyContext),
    update: fn(&mut Value, &Value, &StrategyContext),
    update_status: fn(&mut Value, &Value, &StrategyContext),
    /// Fills in times that a write omits.
    stamp: fn(&mut Value, &StrategyContext),
    /// Adds fields that clients see although they are not stored in that form.
    show: fn(&mut Value),
    /// Converts a valid object to its stored form.
    canonicalize: fn(&mut Value),
    /// Seconds that a deletion waits, given those of the request. `None` for kinds that are deleted at once.
    grace_period: Option<fn(&Value, Option<i64>) -> i64>,
    /// Fields that a write cannot set, besides those that follow from `status` and `metadata`.
    reset: Option<reset::OwnReset>,
    create_on_update: bool,
    unconditional_update: bool,
    propagation: Propagation,
}

impl Strategy {
    fn drop_disabled(&self, object: &mut Value, old: Option<&Value>, context: &StrategyContext) {
        gates::drop_disabled(self.gates, object, old);
        for fields in self.features {
            fields.drop_disabled(object, old, context.features);
        }
    }
}

/// Handling of `status` in writes that do not use the status subresource.
#[derive(Clone, Copy, Debug)]
enum StatusHandling {
    /// Stores the client's status, if the kind has one.
    AsSent,
    /// Dropped on create; an update leaves the stored status unchanged.
    Reset,
    /// Stored as sent on create; an update leaves the stored status unchanged.
    UnchangedOnUpdate,
}

/// When `metadata.generation` is set and incremented.
#[derive(Clone, Copy, Debug)]
enum Generation {
    Unset,
    /// 1 on create, then never changed.
    OnCreate,
    /// 1 on create; incremented when a value at one of these paths changes.
    Watches(&'static [&'static [&'static str]]),
    /// Unset on create; incremented when a value at one of these paths changes.
    WatchesUpdates(&'static [&'static [&'static str]]),
    /// 1 on create; incremented when the labels or anything outside the metadata change.
    WatchesAll,
}

/// Metadata that an update through `status` may change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataOnStatus {
    /// All metadata that an ordinary update may change.
    AsSent,
    /// Labels, annotations, finalizers, owner references and the deletion timestamp cannot change.
    Unchanged,
    /// The labels cannot change.
    LabelsUnchanged,
    /// Labels, annotations, finalizers and owner references cannot change.
    ApiServiceUnchanged,
    /// Only `managedFields` can change.
    AllUnchanged,
}

/// Fills in times that a write omits: defaults that need a clock. Like other defaults they belong to the writing field manager.
pub fn stamp(strategy: Option<&Strategy>, object: &mut Value, context: &StrategyContext) {
    if let Some(row) = strategy {
        (row.stamp)(object, context);
    }
}

/// Prepares a new object: status, generation, disabled fields and the kind's own steps.
pub fn prepare_create(strategy: Option<&Strategy>, object: &mut Value, context: &StrategyContext) {
    let Some(row) = strategy else { return };
    if matches!(row.status, StatusHandling::Reset) {
        object.remove_at(&["status"]);
    }
    match row.generation {
        Generation::Unset | Generation::WatchesUpdates(_) => {}
        Generation::OnCreate | Generation::Watches(_) | Generation::WatchesAll => {
            api::meta::set(object, "generation", 1_i64);
        }
    }
    row.drop_disabled(object, None, context);
    (row.create)(object, context);
}

/// Restores fields that an update must not change from the old object, and increments the generation if needed.
pub fn prepare_update(strategy: Option<&Strategy>, new: &mut Value, old: &Value, context: &StrategyContext) {
    keep(new, old, &["metadata", "generation"]);
    let Some(row) = strategy else { return };
    match row.status {
        StatusHandling::AsSent => {}
        StatusHandling::Reset | StatusHandling::UnchangedOnUpdate => keep(new, old, &["status"]),
    }
    let sent_grown = row.counts_dropped && grown(row.generation, new, old);
    row.drop_disabled(new, Some(old), context);
    (row.update)(new, old, context);
    if sent_grown || grown(row.generation, new, old) {
        let generation = old.int_at(&["metadata", "generation"]).unwrap_or(0);
        api::meta::set(new, "generation", generation.saturating_add(1));
    }
}

/// Returns true if the change increments the generation.
fn grown(generation: Generation, new: &Value, old: &Value) -> bool {
    match generation {
        Generation::Unset | Generation::OnCreate => false,
        Generation::Watches(paths) | Generation::WatchesUpdates(paths) => {
            paths.iter().any(|path| !same(new.at(path), old.at(path)))
        }
        Generation::WatchesAll => differs_outside_metadata(new, old),
    }
}

/// Restores everything except `status` (and the metadata that the kind lets a status update change) from the old object.
pub fn prepare_update_status(
    strategy: Option<&Strategy>,
    new: &mut Value,
    old: &Value,
    context: &StrategyContext,
) {
    keep(new, old, &["metadata", "generation"]);
    keep(new, old, &["spec"]);
    let Some(row) = strategy else { return };
    match row.metadata {
        MetadataOnStatus::AsSent => {}
        MetadataOnStatus::Unchanged => keep_metadata(new, old),
        MetadataOnStatus::LabelsUnchanged => keep(new, old, &["metadata", "labels"]),
        MetadataOnStatus::ApiServiceUnchanged => {
            for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                keep(new, old, &["metadata", field]);
            }
        }
        MetadataOnStatus::AllUnchanged => {
            let managed = new.at(&["metadata", "managedFields"]).cloned();
            keep(new, old, &["metadata"]);
            match managed {
                Some(managed) => new.set_at(&["metadata", "managedFields"], managed),
                None => drop(new.remove_at(&["metadata", "managedFields"])),
            }
        }
    }
    row.drop_disabled(new, Some(old), context);
    (row.update_status)(new, old, context);
}

/// Restores `status` and the generation from the old namespace, for an update through `finalize`.
pub fn prepare_namespace_finalize(new: &mut Value, old: &Value) {
    keep(new, old, &["metadata", "generation"]);
    keep(new, old, &["status"]);
}

/// Restores everything except the conditions from the old certificate signing request, for an update through `approval`.
pub fn prepare_approval(new: &mut Value, old: &Value, context: &StrategyContext) {
    certificates::prepare_approval(new, old, context);
}

/// Adds fields that clients see, so that managed fields are computed for the object as clients see it.
pub fn show(strategy: Option<&Strategy>, object: &mut Value) {
    if let Some(row) = strategy {
        (row.show)(object);
    }
}

/// Converts a valid object to its stored form.
pub fn canonicalize(strategy: Option<&Strategy>, object: &mut Value) {
    if let Some(row) = strategy {
        (row.canonicalize)(object);
    }
}

/// Seconds that a deletion must wait for another component to finish with `object`, given the seconds that the request
/// asks for. `None` if the kind is deleted at once.
pub fn check_graceful_delete(
    strategy: Option<&Strategy>,
    object: &Value,
    requested: Option<i64>,
) -> Option<i64> {
    strategy.and_then(|row| row.grace_period).map(|grace_period| grace_period(object, requested))
}

/// Returns true if an update of an object that does not exist creates it.
pub fn allow_create_on_update(strategy: Option<&Strategy>) -> bool {
    strategy.is_some_and(|row| row.create_on_update)
}

/// Returns true if an update without a resource version replaces the stored object.
pub fn allow_unconditional_update(strategy: Option<&Strategy>) -> bool {
    strategy.is_some_and(|row| row.unconditional_update)
}

/// Returns the propagation policy of a deletion whose request does not set one.
pub fn default_propagation(strategy: Option<&Strategy>) -> Propagation {
    strategy.map_or(Propagation::Background, |row| row.propagation)
}

/// Sets the value at `path` in `new` to that in `old`, or removes it if `old` has none.
fn keep(new: &mut Value, old: &Value, path: &[&str]) {
    match old.at(path) {
        Some(value) => new.set_at(path, value.clone()),
        None => drop(new.remove_at(path)),
    }
}

fn keep_metadata(new: &mut Value, old: &Value) {
    let fields = [
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ];
    for field in fields {
        keep(new, old, &["metadata", field]);
    }
}

fn differs_outside_metadata(new: &Value, old: &Value) -> bool {
    const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];
    let fields = |value: &Value| -> Vec<String> {
        value.as_map().map(|map| map.keys().map(ToString::to_string).collect()).unwrap_or_default()
    };
    let changed = fields(new)
        .iter()
        .chain(&fields(old))
        .filter(|field| !HEAD.contains(&field.as_str()))
        .any(|field| !same(new.part(field), old.part(field)));
    changed || !same(new.at(&["metadata", "labels"]), old.at(&["metadata", "labels"]))
}

#[cfg(test)]
mod tests;
