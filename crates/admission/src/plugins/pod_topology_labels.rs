//! PodTopologyLabels: copies the topology labels of a node to the pods bound to it.

use api::Status;
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

#[derive(Debug)]
pub struct PodTopologyLabels;

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
