//! PodTopologyLabels, PodResizeValidator and NodeDeclaredFeatureValidator: plugins that compare a pod with
//! its node.

use std::sync::Arc;

use api::quantity::Quantity;
use api::{Status, StatusCause, field};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};
use api::pod_resources::{self, amounts, is_sidecar};

const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Copies the topology labels of a node to the pods bound to it.
#[derive(Debug)]
pub struct PodTopologyLabels;

/// Rejects resizes that the pod or its node does not support.
#[derive(Debug)]
pub struct PodResizeValidator;

/// Rejects updates that need features which the node does not declare.
#[derive(Debug)]
pub struct NodeDeclaredFeatureValidator;

impl Plugin for PodTopologyLabels {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let pods = attributes.resource.resource == "pods" && attributes.resource.group.is_empty();
        if !pods || attributes.operation != Operation::Create {
            return Ok(());
        }
        let node = match attributes.subresource.as_str() {
            "" => object.str_at(&["spec", "nodeName"]).unwrap_or_default(),
            "binding" if object.str_at(&["target", "kind"]) == Some("Node") => {
                object.str_at(&["target", "name"]).unwrap_or_default()
            }
            _ => "",
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = cluster.object("", "nodes", "", node) else { return Ok(()) };
        for label in TOPOLOGY {
            if let Some(value) = node.str_at(&["metadata", "labels", label]) {
                object.set_at(&["metadata", "labels", label], value);
            }
        }
        Ok(())
    }
}

/// The new pod, the old pod and the node's name, if the request changes the spec of a bound pod.
fn changed_pod<'a>(
    attributes: &AdmissionAttributes<'a>,
    object: Option<&'a Value>,
    subresources: &[&str],
) -> Option<(&'a Value, &'a Value, &'a str)> {
    let about = attributes.operation == Operation::Update
        && attributes.resource.resource == "pods"
        && attributes.resource.group.is_empty()
        && subresources.contains(&attributes.subresource.as_str());
    if !about {
        return None;
    }
    let (new, old) = (object?, attributes.old_object.stored()?);
    let generation = |pod: &Value| pod.int_at(&["metadata", "generation"]).unwrap_or(0);
    let node = new.str_at(&["spec", "nodeName"]).filter(|name| !name.is_empty())?;
    // The generation changes with every change of the spec.
    (generation(new) != generation(old)).then_some((new, old, node))
}

fn node(
    attributes: &AdmissionAttributes<'_>,
    pod: &Value,
    name: &str,
    cluster: &dyn ClusterView,
) -> Result<Arc<Value>, Status> {
    cluster
        .object("", "nodes", "", name)
        .ok_or_else(|| attributes.refuse(Some(pod), format!("node {} not found", field::quote(name))))
}

impl Plugin for PodResizeValidator {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some((pod, _, name)) = changed_pod(attributes, object, &["resize"]) else { return Ok(()) };
        let node = node(attributes, pod, name, cluster)?;
        let refuse = |why: String, reason: &'static str| {
            Err(attributes
                .forbidden_because(why, StatusCause { reason: reason.into(), ..StatusCause::default() }))
        };
        if let Some(os) = node.str_at(&["metadata", "labels", "kubernetes.io/os"])
            && os != "linux"
        {
            let (name, os) = (field::quote(name), field::quote(os));
            let why = format!("pod resize is only supported on linux nodes, node {name} is {os}");
            return refuse(why, "UnsupportedPlatform");
        }
        let mut requests = pod_resources::of_containers(pod, "requests");
        pod_resources::of_pod_itself(pod, "requests", &mut requests, pod_resources::is_pod_level);
        pod_resources::add(&mut requests, &amounts(pod.at(&["spec", "overhead"])));
        let allocatable = amounts(node.at(&["status", "allocatable"]));
        let pair = |resource: &str| {
            let of = |list: &pod_resources::Amounts| list.get(resource).cloned().unwrap_or(Quantity::ZERO);
            (of(&requests), of(&allocatable))
        };
        let mut over = Vec::new();
        let (requested, has) = pair("cpu");
        if requested > has {
            let (requested, has) = (requested.milli_value(), has.milli_value());
            over.push(format!("cpu, requested: {requested}, allocatable: {has}"));
        }
        let (requested, has) = pair("memory");
        if requested > has {
            over.push(format!("memory, requested: {}, allocatable: {}", requested.value(), has.value()));
        }
        if over.is_empty() {
            return Ok(());
        }
        let why = format!("node didn't have enough allocatable resources: {}", over.join("; "));
        refuse(why, "NodeCapacity")
    }
}

impl Plugin for NodeDeclaredFeatureValidator {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some((new, old, name)) = changed_pod(attributes, object, &["", "resize"]) else { return Ok(()) };
        let needed = needed_features(old, new);
        if needed.is_empty() {
            return Ok(());
        }
        let node = node(attributes, new, name, cluster)?;
        let declared = node.list_at(&["status", "declaredFeatures"]);
        let missing: Vec<&str> =
            needed.into_iter().filter(|f| !declared.iter().any(|d| d.as_str() == Some(f))).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (missing, name) = (missing.join(", "), field::quote(name));
        let why = format!("pod update requires features {missing} which are not available on node {name}");
        Err(attributes.refuse(object, why))
    }
}

/// The node features that an update of a pod needs, sorted.
fn needed_features(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if differ(old.at(&["spec", "resources"]), new.at(&["spec", "resources"])) {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let later = new.list_at(&["spec", "initContainers"]);
    let resized = old.list_at(&["spec", "initContainers"]).iter().zip(later).any(|(before, after)| {
        !is_sidecar(before) && differ(before.get("resources"), after.get("resources"))
    });
    if resized {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    let (before, after) = (old.list_at(&["spec", "volumes"]), new.list_at(&["spec", "volumes"]));
    let in_memory = |volume: &Value| volume.str_at(&["emptyDir", "medium"]) == Some("Memory");
    let limit = |volume: &Value| {
        volume.str_at(&["emptyDir", "sizeLimit"]).and_then(|text| Quantity::parse(text).ok())
    };
    let regrown = before.len() == after.len()
        && before.iter().zip(after).any(|(before, after)| {
            before.get("name") == after.get("name")
                && in_memory(after)
                && limit(before).zip(limit(after)).is_some_and(|(before, after)| before != after)
        });
    if regrown {
        needed.push("InPlacePodVerticalScalingMemoryBackedVolumes");
    }
    needed
}

/// Whether requests, limits or claims of two resource requirements differ.
fn differ(a: Option<&Value>, b: Option<&Value>) -> bool {
    let side = |value: Option<&Value>, field| amounts(value.and_then(|v| v.get(field)));
    let claims = |value: Option<&Value>| value.map(|v| v.list_at(&["claims"]).to_vec()).unwrap_or_default();
    side(a, "requests") != side(b, "requests")
        || side(a, "limits") != side(b, "limits")
        || claims(a) != claims(b)
}
