//! Updates of pods that are bound to a node, and that node.

use std::sync::Arc;

use api::{Status, field};
use value::Value;

use crate::{AdmissionAttributes, ClusterView, Operation};

/// The new pod, the old pod and the node's name, if the request changes the spec of a bound pod.
pub(super) fn changed_pod<'a>(
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

/// The node with a name; an error that refuses the pod if it does not exist.
pub(super) fn node(
    attributes: &AdmissionAttributes<'_>,
    pod: &Value,
    name: &str,
    cluster: &dyn ClusterView,
) -> Result<Arc<Value>, Status> {
    cluster
        .object("", "nodes", "", name)
        .ok_or_else(|| attributes.refuse(Some(pod), format!("node {} not found", field::quote(name))))
}
