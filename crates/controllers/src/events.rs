//! Emits events about objects, on behalf of controllers.
//!
//! There is one event per object and reason. Repeating it increments its count; a different message for the same reason replaces the
//! message, so that retries whose messages differ in a generated name do not fill the namespace.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::meta;
use api::time::Timestamp;
use value::Value;

use crate::api::{Api, PatchBody};

/// Emits an event of type `Warning`.
pub(crate) async fn warn(api: &impl Api, object: &Value, reason: &str, message: &str, component: &str) {
    emit(api, object, ("Warning", reason), message, component).await;
}

/// Emits an event of type `Normal`.
pub(crate) async fn inform(api: &impl Api, object: &Value, reason: &str, message: &str, component: &str) {
    emit(api, object, ("Normal", reason), message, component).await;
}

/// Creates or updates the event. Failures are only logged: an event is not worth failing a reconciliation.
async fn emit(
    api: &impl Api,
    object: &Value,
    (severity, reason): (&str, &str),
    message: &str,
    component: &str,
) {
    let Some(events) = api.kind("v1", "Event") else { return };
    let namespace = meta::namespace(object);
    let mut hash = DefaultHasher::new();
    (meta::uid(object), reason).hash(&mut hash);
    let name = format!("{}.{:016x}", meta::name(object), hash.finish());
    let now = Timestamp::from_seconds(api.now()).time();
    let object_ref = events.object_ref(namespace, &name);
    if let Ok(Some(existing)) = api.get(&object_ref) {
        let count = existing.int_at(&["count"]).unwrap_or(1).saturating_add(1);
        let patch = Value::map([
            ("count", Value::from(count)),
            ("lastTimestamp", Value::from(now)),
            ("message", Value::from(message)),
        ]);
        if let Err(error) = api.patch(&object_ref, "", &PatchBody::Merge(patch)).await {
            tracing::debug!(event = %object_ref, %error, "cannot update the count of an event");
        }
        return;
    }
    let mut event = crate::api::object(&events, namespace, &name);
    let gvk = meta::gvk(object);
    let about = Value::map([
        ("apiVersion", Value::from(gvk.api_version())),
        ("kind", Value::from(gvk.kind.clone())),
        ("name", Value::from(meta::name(object))),
        ("namespace", Value::from(namespace)),
        ("uid", Value::from(meta::uid(object))),
        ("resourceVersion", Value::from(meta::resource_version(object))),
    ]);
    event.set_at(&["involvedObject"], about);
    for (field, value) in [
        ("reason", Value::from(reason)),
        ("message", Value::from(message)),
        ("type", Value::from(severity)),
        ("count", Value::from(1)),
        ("firstTimestamp", Value::from(now.clone())),
        ("lastTimestamp", Value::from(now)),
        ("reportingComponent", Value::from(component)),
    ] {
        event.set_at(&[field], value);
    }
    event.set_at(&["source", "component"], component);
    if let Err(error) = api.create(&events, namespace, &event).await {
        tracing::debug!(event = %object_ref, %error, "cannot create an event");
    }
}
