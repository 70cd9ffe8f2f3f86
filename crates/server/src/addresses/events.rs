//! Events about Services, IPAddresses and ServiceCIDRs, with the fields that kube-apiserver's recorders set.
//!
//! There is one event per object, reason and message. Repeating it increments its count.

use api::event::{self, EventReport};
use api::time::Timestamp;
use api::{Status, meta};
use service_addresses::repair::Warning;
use value::Value;

use crate::client::LoopbackClient;

/// Emits a warning as `controller`. Failures are only logged.
pub(super) async fn warn(
    client: &LoopbackClient,
    object: &Value,
    warning: &Warning,
    controller: &str,
    now: i64,
) {
    if let Err(status) = write(client, object, warning, controller, now).await {
        tracing::debug!(
            object = meta::name(object),
            reason = warning.reason,
            error = status.message(),
            "cannot write an event"
        );
    }
}

async fn write(
    client: &LoopbackClient,
    object: &Value,
    warning: &Warning,
    controller: &str,
    now: i64,
) -> Result<(), Status> {
    let namespace = match meta::namespace(object) {
        "" => "default",
        namespace => namespace,
    };
    // The names of IPv6 addresses are not allowed in names of events.
    let stem = match meta::name(object) {
        name if name.contains(':') => meta::uid(object),
        name => name,
    };
    let name = event::name(stem, (meta::uid(object), &warning.reason, &warning.message));
    let is_core = warning.action.is_empty();
    let group = if is_core { "/api/v1" } else { "/apis/events.k8s.io/v1" };
    let collection = format!("{group}/namespaces/{namespace}/events");
    let path = format!("{collection}/{name}");
    let now = Timestamp::from_seconds(now);
    match client.get(&path).await {
        Ok(existing) => {
            let patch = if is_core {
                event::repeated_core(&existing, now)
            } else {
                event::repeated_with_action(&existing, now)
            };
            client.merge_patch(&path, &patch).await.map(drop)
        }
        Err(status) if status.code() == 404 => {
            let report = EventReport {
                object,
                event_type: "Warning",
                reason: &warning.reason,
                message: &warning.message,
                component: controller,
            };
            let event = if is_core {
                report.core(namespace, &name, now)
            } else {
                let instance = format!("{controller}-{}", runtime::identity::host());
                report.with_action((warning.action, &instance), namespace, &name, now)
            };
            client.create(&collection, &event).await.map(drop)
        }
        Err(status) => Err(status),
    }
}
