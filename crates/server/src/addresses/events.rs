//! Events about Services, IPAddresses and ServiceCIDRs, with the fields that kube-apiserver's recorders set.
//!
//! There is one event per object, reason and message. Repeating it increments its count.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::time::Timestamp;
use api::{Status, meta};
use value::{Map, Value};

use crate::client::Client;

/// A warning about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Warning {
    pub(super) reason: String,
    /// Empty for events of the core group, which have none.
    pub(super) action: &'static str,
    pub(super) message: String,
}

/// Emits a warning as `controller`. Failures are only logged.
pub(super) async fn warn(client: &Client, object: &Value, warning: &Warning, controller: &str, now: i64) {
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
    client: &Client,
    object: &Value,
    warning: &Warning,
    controller: &str,
    now: i64,
) -> Result<(), Status> {
    let namespace = match meta::namespace(object) {
        "" => "default",
        namespace => namespace,
    };
    let mut hash = DefaultHasher::new();
    (meta::uid(object), &warning.reason, &warning.message).hash(&mut hash);
    // The names of IPv6 addresses are not allowed in names of events.
    let stem = match meta::name(object) {
        name if name.contains(':') => meta::uid(object),
        name => name,
    };
    let name = format!("{stem}.{:016x}", hash.finish());
    let group = if warning.action.is_empty() { "/api/v1" } else { "/apis/events.k8s.io/v1" };
    let collection = format!("{group}/namespaces/{namespace}/events");
    let path = format!("{collection}/{name}");
    match client.get(&path).await {
        Ok(existing) => {
            let patch = repeated(&existing, warning, now);
            client.merge_patch(&path, &patch).await.map(drop)
        }
        Err(status) if status.code() == 404 => {
            let mut event = if warning.action.is_empty() {
                core_event(object, warning, controller, now)
            } else {
                event(object, warning, controller, now)
            };
            event.set_at(&["metadata", "name"], name);
            event.set_at(&["metadata", "namespace"], namespace);
            client.create(&collection, &event).await.map(drop)
        }
        Err(status) => Err(status),
    }
}

/// The patch that counts an event once more.
fn repeated(existing: &Value, warning: &Warning, now: i64) -> Value {
    let mut patch = Value::Map(Map::new());
    if warning.action.is_empty() {
        let count = existing.int_at(&["count"]).unwrap_or(1).saturating_add(1);
        patch.set_at(&["count"], count);
        patch.set_at(&["lastTimestamp"], Timestamp::from_seconds(now).time());
    } else {
        let count = existing.int_at(&["series", "count"]).unwrap_or(1).saturating_add(1);
        patch.set_at(&["series", "count"], count);
        patch.set_at(&["series", "lastObservedTime"], Timestamp::from_seconds(now).micro_time());
    }
    patch
}

fn reference(object: &Value) -> Value {
    let gvk = meta::gvk(object);
    let mut reference = Value::map([
        ("apiVersion", Value::from(gvk.api_version())),
        ("kind", Value::from(gvk.kind.clone())),
        ("name", Value::from(meta::name(object))),
        ("uid", Value::from(meta::uid(object))),
        ("resourceVersion", Value::from(meta::resource_version(object))),
    ]);
    if !meta::namespace(object).is_empty() {
        reference.set_at(&["namespace"], meta::namespace(object));
    }
    reference
}

fn event(object: &Value, warning: &Warning, controller: &str, now: i64) -> Value {
    Value::map([
        ("apiVersion", Value::from("events.k8s.io/v1")),
        ("kind", Value::from("Event")),
        ("eventTime", Value::from(Timestamp::from_seconds(now).micro_time())),
        ("reportingController", Value::from(controller)),
        ("reportingInstance", Value::from(format!("{controller}-{}", runtime::identity::host()))),
        ("action", Value::from(warning.action)),
        ("reason", Value::from(warning.reason.as_str())),
        ("regarding", reference(object)),
        ("note", Value::from(warning.message.as_str())),
        ("type", Value::from("Warning")),
    ])
}

fn core_event(object: &Value, warning: &Warning, controller: &str, now: i64) -> Value {
    let time = Timestamp::from_seconds(now).time();
    let mut event = Value::map([
        ("apiVersion", Value::from("v1")),
        ("kind", Value::from("Event")),
        ("involvedObject", reference(object)),
        ("reason", Value::from(warning.reason.as_str())),
        ("message", Value::from(warning.message.as_str())),
        ("type", Value::from("Warning")),
        ("count", Value::from(1)),
        ("firstTimestamp", Value::from(time.clone())),
        ("lastTimestamp", Value::from(time)),
        ("reportingComponent", Value::from(controller)),
    ]);
    event.set_at(&["source", "component"], controller);
    event
}
