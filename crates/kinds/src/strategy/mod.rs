//! Strategies: what a create or an update does to an object before admission and validation see it.
//!
//! One [`Strategy`] per kind, which the row of the kind names ([`crate::table`]). It says what happens to a client's `status`, what makes `metadata.generation`
//! grow, which metadata a status update may change, and which of the kind's own steps run. What is common to all kinds
//! (uid, creation time, name generation) is the pipeline's.

mod certificates;
mod gates;
mod pod;
mod reset;
mod resource;
pub mod service;
mod storage;
pub(crate) mod table;

use value::Value;

use api::validation::fields::{Read, same};

pub(crate) use pod::{APP_ARMOR_PREFIX, app_armor_profile, deprecated_app_armor_annotations};
pub use pod::{drop_init_container_annotations, prepare_ephemeral_containers, prepare_resize};
pub use reset::{custom_reset_fields, reset_fields};
pub use resource::drop_admin_access;

/// Who is calling: what a `CertificateSigningRequest` records.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The user's name.
    pub username: String,
    /// The user's uid; often empty.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// What else the authenticator said.
    pub extra: Vec<(String, Vec<String>)>,
}

/// What a strategy may know besides the object.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The time of the request, as `metadata.creationTimestamp` writes it (`2006-01-02T15:04:05Z`).
    pub now: String,
    /// Who is calling.
    pub caller: Caller,
}

impl Context {
    /// The time of the request as a field holds it; none where it is not known.
    fn time(&self) -> Value {
        if self.now.is_empty() { Value::Null } else { self.now.as_str().into() }
    }
}

/// What deleting an object does to its dependents when the request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are collected after the owner is gone.
    Background,
    /// They stay, without their owner.
    Orphan,
    /// The kind takes no part in garbage collection.
    Unsupported,
}

/// How one kind behaves.
#[derive(Clone, Copy, Debug)]
pub struct Strategy {
    status: Status,
    generation: Generation,
    /// Whether a change counts even if it is to a field that is dropped.
    counts_dropped: bool,
    metadata: MetadataOnStatus,
    gates: &'static [gates::Gate],
    create: fn(&mut Value, &Context),
    update: fn(&mut Value, &Value, &Context),
    update_status: fn(&mut Value, &Value, &Context),
    /// Fills in times that a write leaves out.
    stamp: fn(&mut Value, &Context),
    /// Adds fields that clients see although they are not stored as such.
    show: fn(&mut Value),
    /// Brings a valid object into the form it is stored in.
    canonicalize: fn(&mut Value),
    /// The seconds that a deletion waits, given those of the request. `None` for kinds that are deleted at once.
    grace_period: Option<fn(&Value, Option<i64>) -> i64>,
    /// Fields that a write cannot set, beside those that follow from `status` and `metadata`.
    reset: Option<reset::OwnReset>,
    create_on_update: bool,
    unconditional_update: bool,
    propagation: Propagation,
}

/// What happens to `status` outside of the status subresource.
#[derive(Clone, Copy, Debug)]
enum Status {
    /// The kind has none, or the client's counts.
    AsSent,
    /// Dropped on create, kept on update.
    Reset,
    /// As sent on create, kept on update.
    KeptOnUpdate,
}

/// When `metadata.generation` is set and grows.
#[derive(Clone, Copy, Debug)]
enum Generation {
    /// Never.
    Unset,
    /// 1 on create, then never touched.
    OnCreate,
    /// 1 on create; one more when something at one of these paths changes.
    Watches(&'static [&'static [&'static str]]),
    /// Not set on create; one more when something at one of these paths changes.
    WatchesUpdates(&'static [&'static [&'static str]]),
    /// 1 on create; one more when anything but metadata, or the labels, change.
    WatchesAll,
}

/// Which metadata an update through `status` may change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataOnStatus {
    /// What an update may change.
    AsSent,
    /// Labels, annotations, finalizers, owners and the deletion time stay.
    Kept,
    /// Labels stay.
    LabelsKept,
    /// Labels, annotations, finalizers and owners stay.
    ApiServiceKept,
    /// Everything but `managedFields` stays.
    AllKept,
}

/// Fills in the times that a write without them means: defaults that need a clock. As other defaults they are the writer's.
pub fn stamp(strategy: Option<&Strategy>, object: &mut Value, context: &Context) {
    if let Some(row) = strategy {
        (row.stamp)(object, context);
    }
}

/// Makes a new object what its kind starts as.
pub fn prepare_create(strategy: Option<&Strategy>, object: &mut Value, context: &Context) {
    let Some(row) = strategy else { return };
    if matches!(row.status, Status::Reset) {
        object.remove_at(&["status"]);
    }
    match row.generation {
        Generation::Unset | Generation::WatchesUpdates(_) => {}
        Generation::OnCreate | Generation::Watches(_) | Generation::WatchesAll => {
            api::meta::set(object, "generation", 1_i64);
        }
    }
    gates::drop_disabled(row.gates, object, None);
    (row.create)(object, context);
}

/// Brings what an update must not change over from the old object, and lets the generation grow.
pub fn prepare_update(strategy: Option<&Strategy>, new: &mut Value, old: &Value, context: &Context) {
    keep(new, old, &["metadata", "generation"]);
    let Some(row) = strategy else { return };
    match row.status {
        Status::AsSent => {}
        Status::Reset | Status::KeptOnUpdate => keep(new, old, &["status"]),
    }
    let sent_grown = row.counts_dropped && grown(row.generation, new, old);
    gates::drop_disabled(row.gates, new, Some(old));
    (row.update)(new, old, context);
    if sent_grown || grown(row.generation, new, old) {
        let generation = old.int_at(&["metadata", "generation"]).unwrap_or(0);
        api::meta::set(new, "generation", generation.saturating_add(1));
    }
}

/// Whether a change is one that the generation counts.
fn grown(generation: Generation, new: &Value, old: &Value) -> bool {
    match generation {
        Generation::Unset | Generation::OnCreate => false,
        Generation::Watches(paths) | Generation::WatchesUpdates(paths) => {
            paths.iter().any(|path| !same(new.at(path), old.at(path)))
        }
        Generation::WatchesAll => differs_outside_metadata(new, old),
    }
}

/// Keeps everything but `status` (and the metadata the kind lets a status update change) from the old object.
pub fn prepare_update_status(strategy: Option<&Strategy>, new: &mut Value, old: &Value, context: &Context) {
    keep(new, old, &["metadata", "generation"]);
    keep(new, old, &["spec"]);
    let Some(row) = strategy else { return };
    match row.metadata {
        MetadataOnStatus::AsSent => {}
        MetadataOnStatus::Kept => keep_metadata(new, old),
        MetadataOnStatus::LabelsKept => keep(new, old, &["metadata", "labels"]),
        MetadataOnStatus::ApiServiceKept => {
            for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                keep(new, old, &["metadata", field]);
            }
        }
        MetadataOnStatus::AllKept => {
            let managed = new.at(&["metadata", "managedFields"]).cloned();
            keep(new, old, &["metadata"]);
            match managed {
                Some(managed) => new.set_at(&["metadata", "managedFields"], managed),
                None => drop(new.remove_at(&["metadata", "managedFields"])),
            }
        }
    }
    gates::drop_disabled(row.gates, new, Some(old));
    (row.update_status)(new, old, context);
}

/// Keeps all but `spec.finalizers` and metadata from the old namespace: an update through `finalize`.
pub fn prepare_namespace_finalize(new: &mut Value, old: &Value) {
    keep(new, old, &["metadata", "generation"]);
    keep(new, old, &["status"]);
}

/// Keeps all but the conditions from the old certificate signing request: an update through `approval`.
pub fn prepare_approval(new: &mut Value, old: &Value, context: &Context) {
    certificates::prepare_approval(new, old, context);
}

/// Adds what clients see of an object as it was sent: that is what managed fields are about.
pub fn show(strategy: Option<&Strategy>, object: &mut Value) {
    if let Some(row) = strategy {
        (row.show)(object);
    }
}

/// Brings a valid object into the form it is stored in.
pub fn canonicalize(strategy: Option<&Strategy>, object: &mut Value) {
    if let Some(row) = strategy {
        (row.canonicalize)(object);
    }
}

/// The seconds a deletion of `object` must wait for another component to finish with it, given the seconds the request
/// asks for; `None` where the kind is deleted at once.
pub fn check_graceful_delete(
    strategy: Option<&Strategy>,
    object: &Value,
    requested: Option<i64>,
) -> Option<i64> {
    strategy.and_then(|row| row.grace_period).map(|grace_period| grace_period(object, requested))
}

/// Whether an update of a name that does not exist creates it.
pub fn allow_create_on_update(strategy: Option<&Strategy>) -> bool {
    strategy.is_some_and(|row| row.create_on_update)
}

/// Whether an update without a resource version replaces whatever is there.
pub fn allow_unconditional_update(strategy: Option<&Strategy>) -> bool {
    strategy.is_some_and(|row| row.unconditional_update)
}

/// What deleting an object of `kind` does to its dependents when the request does not say.
pub fn default_propagation(strategy: Option<&Strategy>) -> Propagation {
    strategy.map_or(Propagation::Background, |row| row.propagation)
}

/// What is at `path` in `old` (or its absence) takes the place of what is there in `new`.
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
