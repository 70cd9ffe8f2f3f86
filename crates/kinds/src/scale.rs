//! `autoscaling/v1` Scale: the view of a workload that the `scale` subresource reads and writes.

use api::selector::LabelSelector;
use api::{FieldErrors, GroupKind, GroupResource, Status};
use value::{Map, Value};

use api::validation::fields::{At, Read, Report};

/// Kinds with a `scale` subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaled {
    Deployment,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
}

impl Scaled {
    pub fn of(kind: &GroupKind) -> Option<Self> {
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("apps", "Deployment") => Some(Scaled::Deployment),
            ("apps", "ReplicaSet") => Some(Scaled::ReplicaSet),
            ("apps", "StatefulSet") => Some(Scaled::StatefulSet),
            ("", "ReplicationController") => Some(Scaled::ReplicationController),
            _ => None,
        }
    }

    /// Resource name used in errors, for example `deployments/scale`.
    pub fn resource(self) -> GroupResource {
        match self {
            Scaled::Deployment => GroupResource::new("apps", "deployments/scale"),
            Scaled::ReplicaSet => GroupResource::new("apps", "replicasets/scale"),
            Scaled::StatefulSet => GroupResource::new("apps", "statefulsets/scale"),
            Scaled::ReplicationController => GroupResource::new("", "replicationcontrollers/scale"),
        }
    }
}

/// Builds the Scale of a workload.
pub fn from_object(scaled: Scaled, object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"] {
        if let Some(value) = object.part("metadata").part(field) {
            metadata.insert(field, value.clone());
        }
    }
    let spec = object.part("spec");
    let mut scale_spec = Map::new();
    let replicas = spec.number("replicas");
    if replicas != 0 {
        scale_spec.insert("replicas", replicas);
    }
    let mut status = Map::new();
    status.insert("replicas", object.part("status").number("replicas"));
    let selector = match scaled {
        Scaled::ReplicationController => spec.map_of("selector").map(LabelSelector::from_set),
        _ => LabelSelector::from_label_selector(spec.part("selector")).ok(),
    };
    let selector = selector.map(|selector| selector.to_string()).unwrap_or_default();
    if !selector.is_empty() {
        status.insert("selector", selector);
    }
    Value::map([
        ("apiVersion", Value::from("autoscaling/v1")),
        ("kind", "Scale".into()),
        ("metadata", Value::Map(metadata)),
        ("spec", Value::Map(scale_spec)),
        ("status", Value::Map(status)),
    ])
}

/// Returns the workload with the replicas and resource version of `scale`. Fails if `scale` is invalid or if its uid is another object's.
pub fn apply(scaled: Scaled, object: &Value, scale: &Value) -> Result<Value, Status> {
    let name = api::meta::name(object);
    let errors = validate(scale);
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::new("autoscaling", "Scale"), name, &errors));
    }
    let (wanted, uid) = (api::meta::uid(scale), api::meta::uid(object));
    if !wanted.is_empty() && wanted != uid {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        return Err(Status::conflict(&scaled.resource(), name, why));
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
