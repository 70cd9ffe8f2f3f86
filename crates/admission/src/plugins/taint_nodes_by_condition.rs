//! TaintNodesByCondition: a new node is tainted as not ready, so that nothing is scheduled on it before it is.

use api::Status;
use value::{Map, Value};

use crate::{Attributes, Cluster, Notes, Operation, Plugin};

/// The taint's key.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// See the module.
#[derive(Debug)]
pub struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if attributes.operation != Operation::Create || !attributes.is_resource("", "nodes") {
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
        // A node always has a specification.
        if object.get("spec").is_none() {
            object.set_at(&["spec"], Map::new());
        }
        Ok(())
    }
}
