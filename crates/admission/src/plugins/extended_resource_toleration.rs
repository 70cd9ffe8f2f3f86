//! ExtendedResourceToleration: lets pods run on nodes that are reserved for extended resources. Off by default.

use std::collections::BTreeSet;

use api::Status;
use api::pod_resources::is_extended;
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

/// Adds a toleration for the taint of each extended resource that a pod requests, so that nodes with it can
/// be reserved.
#[derive(Debug)]
pub struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
            return Ok(());
        }
        let containers = pod.list_at(&["spec", "containers"]).iter();
        let context: BTreeSet<String> = containers
            .chain(pod.list_at(&["spec", "initContainers"]))
            .filter_map(|container| container.at(&["resources", "requests"])?.as_map())
            .flat_map(|requests| requests.keys().map(ToString::to_string))
            .filter(|name| is_extended(name))
            .collect();
        for resource in context {
            tolerate(pod, &resource);
        }
        Ok(())
    }
}

fn tolerate(pod: &mut Value, resource: &str) {
    let toleration = Value::map([("effect", "NoSchedule"), ("key", resource), ("operator", "Exists")]);
    let Some(list) = pod.at_mut(&["spec", "tolerations"]).and_then(Value::as_list_mut) else {
        super::append(pod, &["spec", "tolerations"], toleration);
        return;
    };
    // A toleration that differs only in its seconds is replaced.
    let same = |other: &Value| {
        let text = |field| other.str_at(&[field]).unwrap_or_default();
        text("key") == resource
            && text("operator") == "Exists"
            && text("effect") == "NoSchedule"
            && text("value").is_empty()
    };
    let mut found = false;
    for other in list.iter_mut().filter(|other| same(other)) {
        *other = toleration.clone();
        found = true;
    }
    if !found {
        list.push(toleration);
    }
}
