//! TaintNodesByCondition: taints new nodes as not ready, so that no pods are scheduled before they are.

use api::Status;
use value::{Map, Value};

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[derive(Debug)]
pub struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.creates("", "nodes") {
            return Ok(());
        }
        let is_it = |taint: &Value| {
            taint.str_at(&["key"]) == Some(NOT_READY) && taint.str_at(&["effect"]) == Some("NoSchedule")
        };
        if !object.list_at(&["spec", "taints"]).iter().any(is_it) {
            super::append(
                object,
                &["spec", "taints"],
                Value::map([("key", NOT_READY), ("effect", "NoSchedule")]),
            );
        }
        // Kubernetes always writes the spec of a node.
        if object.get("spec").is_none() {
            object.set_at(&["spec"], Map::new());
        }
        Ok(())
    }
}
