//! The `kubernetes` `ServiceCIDR` object, which shows clients the ranges cluster IPs are allocated from.

use api::time::Timestamp;
use api::{Status, meta};
use value::Value;

use super::object;
use crate::client::LoopbackClient;
use crate::restore_deleted::ObjectAt;
use crate::state::State;

const COLLECTION: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// The object and the path of its collection. Its status is written through the `status` subresource.
pub(crate) fn default_service_cidr(state: &State) -> ObjectAt {
    let mut cidr = object("networking.k8s.io/v1", "ServiceCIDR", "", "kubernetes");
    cidr.set_at(&["spec", "cidrs"], Value::list(state.addresses.ranges()));
    let ready = Value::map([
        ("type", "Ready"),
        ("status", "True"),
        ("message", "Kubernetes default Service CIDR is ready"),
        ("lastTransitionTime", &Timestamp::from_seconds(state.now()).time()),
    ]);
    cidr.set_at(&["status", "conditions"], Value::List(vec![ready]));
    (COLLECTION.to_owned(), cidr)
}

/// Sets the `Ready` condition, unless it is already set, the object is being deleted or its ranges differ. A 404 counts as
/// success, because the resource may be disabled (`--runtime-config`).
pub(super) async fn mark_ready(client: &LoopbackClient, path: &str, cidr: &Value) -> Result<(), Status> {
    let marked = match client.get(path).await {
        Ok(stored) if needs_mark(&stored, cidr) => client.apply_status(path, cidr).await.map(drop),
        Ok(_) => Ok(()),
        Err(status) => Err(status),
    };
    match marked {
        Err(status) if status.code() != 404 => Err(status),
        _ => Ok(()),
    }
}

fn needs_mark(stored: &Value, cidr: &Value) -> bool {
    let is_ready = |condition: &Value| condition.str_at(&["type"]) == Some("Ready");
    let ranges = ["spec", "cidrs"];
    !meta::is_deleting(stored)
        && stored.at(&ranges) == cidr.at(&ranges)
        && !stored.list_at(&["status", "conditions"]).iter().any(is_ready)
}
