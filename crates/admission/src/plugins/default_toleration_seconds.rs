//! DefaultTolerationSeconds: adds tolerations for not-ready and unreachable nodes to pods that have none.

use api::Status;
use value::Value;

use super::taint_nodes_by_condition::NOT_READY;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[derive(Debug)]
pub struct DefaultTolerationSeconds {
    /// From the flag `--default-not-ready-toleration-seconds`.
    pub not_ready: i64,
    /// From the flag `--default-unreachable-toleration-seconds`.
    pub unreachable: i64,
}

impl Plugin for DefaultTolerationSeconds {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
            return Ok(());
        }
        let [tolerates_not_ready, tolerates_unreachable] = [NOT_READY, UNREACHABLE].map(|taint| {
            object.list_at(&["spec", "tolerations"]).iter().any(|toleration| {
                let text = |field| toleration.str_at(&[field]).unwrap_or_default();
                (text("key") == taint || text("key").is_empty())
                    && (text("effect") == "NoExecute" || text("effect").is_empty())
            })
        });
        for (tolerated, key, seconds) in [
            (tolerates_not_ready, NOT_READY, self.not_ready),
            (tolerates_unreachable, UNREACHABLE, self.unreachable),
        ] {
            if !tolerated {
                let toleration = Value::map([
                    ("effect", Value::from("NoExecute")),
                    ("key", Value::from(key)),
                    ("operator", Value::from("Exists")),
                    ("tolerationSeconds", Value::from(seconds)),
                ]);
                super::append(object, &["spec", "tolerations"], toleration);
            }
        }
        Ok(())
    }
}
