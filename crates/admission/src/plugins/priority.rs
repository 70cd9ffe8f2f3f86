//! Priority: sets a pod's priority and preemption policy from its PriorityClass, and allows only one global
//! default class.

use std::sync::Arc;

use api::{Status, meta};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: &str = "priorityclasses";

#[derive(Debug)]
pub struct Priority;

impl Plugin for Priority {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.is_resource("", "pods") {
            return Ok(());
        }
        match attributes.operation {
            Operation::Create => set(attributes, object, cluster),
            Operation::Update => {
                keep(attributes, object);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !attributes.is_resource(GROUP, CLASSES) || object.bool_at(&["globalDefault"]) != Some(true) {
            return Ok(());
        }
        let Some(default) = default_class(cluster) else { return Ok(()) };
        let name = meta::name(&default);
        if attributes.operation == Operation::Create || name != meta::name(object) {
            let why =
                format!("PriorityClass {name} is already marked as default. Only one default can exist");
            return Err(attributes.refuse(Some(object), why));
        }
        Ok(())
    }
}

/// Restores values that an update omits, because pod validation rejects any change of them.
fn keep(attributes: &AdmissionAttributes<'_>, pod: &mut Value) {
    let Some(old) = attributes.old_object.stored() else { return };
    for field in ["priority", "preemptionPolicy"] {
        if pod.at(&["spec", field]).is_none()
            && let Some(before) = old.at(&["spec", field])
        {
            pod.set_at(&["spec", field], before.clone());
        }
    }
}

fn set(
    attributes: &AdmissionAttributes<'_>,
    pod: &mut Value,
    cluster: &dyn ClusterView,
) -> Result<(), Status> {
    let context = pod.str_at(&["spec", "priorityClassName"]).unwrap_or_default();
    let class = if context.is_empty() {
        default_class(cluster)
    } else {
        let found = cluster.object(GROUP, CLASSES, "", context);
        if found.is_none() {
            let why = format!("no PriorityClass with name {context} was found");
            return Err(attributes.refuse(Some(pod), why));
        }
        found
    };
    let priority = class.as_ref().and_then(|class| class.int_at(&["value"])).unwrap_or(0);
    // Without a class, pods may preempt others. A class without a policy leaves the field unset.
    let policy = match &class {
        None => Some("PreemptLowerPriority"),
        Some(class) => class.str_at(&["preemptionPolicy"]),
    };
    if let Some(given) = pod.int_at(&["spec", "priority"])
        && given != priority
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(attributes.refuse(Some(pod), why));
    }
    if let Some(policy) = policy
        && let Some(given) = pod.str_at(&["spec", "preemptionPolicy"])
        && given != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(attributes.refuse(Some(pod), why));
    }
    if let Some(class) = &class {
        pod.set_at(&["spec", "priorityClassName"], meta::name(class));
    }
    pod.set_at(&["spec", "priority"], priority);
    if let Some(policy) = policy {
        pod.set_at(&["spec", "preemptionPolicy"], policy);
    }
    Ok(())
}

/// The class of pods that name none; of several, the one with the lowest value.
fn default_class(cluster: &dyn ClusterView) -> Option<Arc<Value>> {
    cluster
        .list(GROUP, CLASSES, "")
        .into_iter()
        .filter(|class| class.bool_at(&["globalDefault"]) == Some(true))
        .min_by_key(|class| class.int_at(&["value"]))
}
