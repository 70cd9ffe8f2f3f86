//! Emits events about objects, on behalf of controllers.
//!
//! There is one event per object and reason. Repeating it increments its count; a different message for the same reason replaces the
//! message, so that retries whose messages differ in a generated name do not fill the namespace.

use api::event::{self, EventReport};
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
    let name = event::name(meta::name(object), (meta::uid(object), reason));
    let now = Timestamp::from_seconds(api.now());
    let object_ref = events.object_ref(namespace, &name);
    if let Ok(Some(existing)) = api.get(&object_ref) {
        let mut patch = event::repeated_core(&existing, now);
        patch.set_at(&["message"], message);
        if let Err(error) = api.patch(&object_ref, "", &PatchBody::Merge(patch)).await {
            tracing::debug!(event = %object_ref, %error, "cannot update the count of an event");
        }
        return;
    }
    let report = EventReport { object, event_type: severity, reason, message, component };
    let event = report.core(namespace, &name, now);
    if let Err(error) = api.create(&events, namespace, &event).await {
        tracing::debug!(event = %object_ref, %error, "cannot create an event");
    }
}
