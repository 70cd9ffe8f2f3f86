//! `autoscaling/v1` Scale: the view of a workload that the `scale` subresource reads and writes.

use api::selector::LabelSelector;
use api::{FieldErrors, GroupKind, GroupResource, Status};
use value::Value;

use api::validation::fields::{At, Read, Report};

use crate::table::{self, Resource};

/// A built-in kind with a `scale` subresource.
#[derive(Clone, Copy, Debug)]
pub struct ScalableKind(&'static Resource);

impl ScalableKind {
    pub fn of(kind: &GroupKind) -> Option<Self> {
        let row = table::all().find(|row| row.group == kind.group && row.kind == kind.kind)?;
        row.subresource("scale").map(|_| ScalableKind(row))
    }

    /// Resource name used in errors, for example `deployments/scale`.
    pub fn resource(self) -> GroupResource {
        GroupResource::new(self.0.group, format!("{}/scale", self.0.plural))
    }

    /// ReplicationControllers select by a set of labels, which preceded label selectors.
    fn selects_by_set(self) -> bool {
        self.0.kind == "ReplicationController"
    }
}

/// Builds the Scale of a workload.
pub fn from_object(kind: ScalableKind, object: &Value) -> Value {
    let spec = object.part("spec");
    let selector = if kind.selects_by_set() {
        spec.map_of("selector").map(LabelSelector::from_set)
    } else {
        LabelSelector::from_label_selector(spec.part("selector")).ok()
    };
    let selector = selector.map(|selector| selector.to_string()).unwrap_or_default();
    let current = object.part("status").number("replicas");
    api::scale::build(object, spec.number("replicas"), current, &selector)
}

/// Returns the workload with the replicas and resource version of `scale`. Fails if `scale` is invalid or if its uid is another object's.
pub fn apply(kind: ScalableKind, object: &Value, scale: &Value) -> Result<Value, Status> {
    let name = api::meta::name(object);
    let errors = validate(scale);
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::new("autoscaling", "Scale"), name, &errors));
    }
    let (wanted, uid) = (api::meta::uid(scale), api::meta::uid(object));
    if !wanted.is_empty() && wanted != uid {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        return Err(Status::conflict(&kind.resource(), name, why));
    }
    let mut changed = object.clone();
    changed.set_at(&["spec", "replicas"], scale.part("spec").number("replicas"));
    match scale.part("metadata").part("resourceVersion") {
        Some(version) => changed.set_at(&["metadata", "resourceVersion"], version.clone()),
        None => drop(changed.remove_at(&["metadata", "resourceVersion"])),
    }
    Ok(changed)
}

pub fn validate(scale: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    errors.not_negative(&At::new("spec.replicas"), scale.part("spec").number("replicas"));
    errors
}

#[cfg(test)]
mod tests;
