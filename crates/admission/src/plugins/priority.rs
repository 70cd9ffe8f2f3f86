//! Priority: sets the priority of pods and pod groups, and the preemption policy of pods, from their PriorityClass; and allows only one
//! global default class.

use std::sync::Arc;

use api::features::{Feature, Features};
use api::{Status, meta};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: &str = "priorityclasses";

#[derive(Debug)]
pub struct Priority {
    pub features: Features,
}

/// The resources of groups of pods, with their features and what messages call them.
const POD_GROUPS: [(&str, Feature, &str); 2] = [
    ("podgroups", Feature::GenericWorkload, "pod group"),
    ("compositepodgroups", Feature::CompositePodGroup, "composite pod group"),
];

impl Plugin for Priority {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        for (resource, feature, noun) in POD_GROUPS {
            if attributes.is_resource(GROUP, resource) {
                let is_new = attributes.operation == Operation::Create && self.features.has(feature);
                return if is_new { set_of_group(attributes, object, cluster, noun) } else { Ok(()) };
            }
        }
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
    let class = class_of(attributes, pod, cluster)?;
    let priority = value_of(class.as_deref());
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

/// The class that an object names, or else the default one, if there is any.
fn class_of(
    attributes: &AdmissionAttributes<'_>,
    object: &Value,
    cluster: &dyn ClusterView,
) -> Result<Option<Arc<Value>>, Status> {
    let name = object.str_at(&["spec", "priorityClassName"]).unwrap_or_default();
    if name.is_empty() {
        return Ok(default_class(cluster));
    }
    match cluster.object(GROUP, CLASSES, "", name) {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("no PriorityClass with name {name} was found");
            Err(attributes.refuse(Some(object), why))
        }
    }
}

fn value_of(class: Option<&Value>) -> i64 {
    class.and_then(|class| class.int_at(&["value"])).unwrap_or(0)
}

/// Sets the priority of a new group of pods, which `noun` names in the message.
fn set_of_group(
    attributes: &AdmissionAttributes<'_>,
    group: &mut Value,
    cluster: &dyn ClusterView,
    noun: &str,
) -> Result<(), Status> {
    let class = class_of(attributes, group, cluster)?;
    let priority = value_of(class.as_deref());
    if let Some(given) = group.int_at(&["spec", "priority"])
        && given != priority
    {
        let why = format!(
            "priority set in the {noun} ({given}) must match the priority computed ({priority}) based on the priority class set in the spec"
        );
        return Err(attributes.refuse(Some(group), why));
    }
    group.set_at(&["spec", "priority"], priority);
    if let Some(class) = &class {
        group.set_at(&["spec", "priorityClassName"], meta::name(class));
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
