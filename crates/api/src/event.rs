//! Events: the objects with which components report what happened to another object.
//!
//! Nothing here writes them: a component builds the event, or the patch that counts it once more if it exists, and stores it.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use value::{Map, Value};

use crate::meta;
use crate::time::Timestamp;

/// An occurrence that concerns an object.
#[derive(Clone, Copy, Debug)]
pub struct EventReport<'a> {
    pub object: &'a Value,
    /// The type of the event: `Normal` or `Warning`.
    pub event_type: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
    pub component: &'a str,
}

/// The name of the one event with this identity: `stem` and a hash. The identity decides which occurrences are the same event; it should
/// include the uid of the object.
pub fn name(stem: &str, identity: impl Hash) -> String {
    let mut hash = DefaultHasher::new();
    identity.hash(&mut hash);
    format!("{stem}.{:016x}", hash.finish())
}

impl EventReport<'_> {
    /// The event in the core group, counted once.
    pub fn core(&self, namespace: &str, name: &str, now: Timestamp) -> Value {
        let time = now.time();
        let mut event = Value::map([
            ("apiVersion", Value::from("v1")),
            ("kind", Value::from("Event")),
            ("involvedObject", reference(self.object)),
            ("reason", Value::from(self.reason)),
            ("message", Value::from(self.message)),
            ("type", Value::from(self.event_type)),
            ("count", Value::from(1)),
            ("firstTimestamp", Value::from(time.clone())),
            ("lastTimestamp", Value::from(time)),
            ("reportingComponent", Value::from(self.component)),
        ]);
        event.set_at(&["source", "component"], self.component);
        named(event, namespace, name)
    }

    /// The event in the group `events.k8s.io`, which also says what the component did. `instance` is the process of the component.
    pub fn with_action(
        &self,
        (action, instance): (&str, &str),
        namespace: &str,
        name: &str,
        now: Timestamp,
    ) -> Value {
        let event = Value::map([
            ("apiVersion", Value::from("events.k8s.io/v1")),
            ("kind", Value::from("Event")),
            ("eventTime", Value::from(now.micro_time())),
            ("reportingController", Value::from(self.component)),
            ("reportingInstance", Value::from(instance)),
            ("action", Value::from(action)),
            ("reason", Value::from(self.reason)),
            ("regarding", reference(self.object)),
            ("note", Value::from(self.message)),
            ("type", Value::from(self.event_type)),
        ]);
        named(event, namespace, name)
    }
}

/// The merge patch that counts an event of [`EventReport::core`] once more.
pub fn repeated_core(existing: &Value, now: Timestamp) -> Value {
    let mut patch = Value::Map(Map::new());
    patch.set_at(&["count"], existing.int_at(&["count"]).unwrap_or(1).saturating_add(1));
    patch.set_at(&["lastTimestamp"], now.time());
    patch
}

/// The merge patch that counts an event of [`EventReport::with_action`] once more.
pub fn repeated_with_action(existing: &Value, now: Timestamp) -> Value {
    let mut patch = Value::Map(Map::new());
    patch.set_at(&["series", "count"], existing.int_at(&["series", "count"]).unwrap_or(1).saturating_add(1));
    patch.set_at(&["series", "lastObservedTime"], now.micro_time());
    patch
}

fn named(mut event: Value, namespace: &str, name: &str) -> Value {
    meta::set(&mut event, "namespace", namespace);
    meta::set(&mut event, "name", name);
    event
}

fn reference(object: &Value) -> Value {
    let gvk = meta::gvk(object);
    let mut reference = Value::map([
        ("apiVersion", Value::from(gvk.api_version())),
        ("kind", Value::from(gvk.kind)),
        ("name", Value::from(meta::name(object))),
        ("uid", Value::from(meta::uid(object))),
        ("resourceVersion", Value::from(meta::resource_version(object))),
    ]);
    if !meta::namespace(object).is_empty() {
        reference.set_at(&["namespace"], meta::namespace(object));
    }
    reference
}

#[cfg(test)]
mod tests {
    use value::json;

    use super::{EventReport, name, repeated_core, repeated_with_action};
    use crate::time::Timestamp;

    #[test]
    fn repeating_an_event_increments_its_count() {
        let pod = json::parse(
            br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"n","uid":"u"}}"#,
        );
        let pod = pod.unwrap();
        let report = EventReport {
            object: &pod,
            event_type: "Warning",
            reason: "Failed",
            message: "it failed",
            component: "c",
        };
        let (first, second) = (Timestamp::from_seconds(0), Timestamp::from_seconds(1));
        let core = report.core("n", "web.1", first);
        let text = |value| value::write::to_string(&value);
        assert_eq!(
            text(core.clone()),
            r#"{"apiVersion":"v1","count":1,"firstTimestamp":"1970-01-01T00:00:00Z","involvedObject":{"apiVersion":"v1","kind":"Pod","name":"web","namespace":"n","resourceVersion":"","uid":"u"},"kind":"Event","lastTimestamp":"1970-01-01T00:00:00Z","message":"it failed","metadata":{"name":"web.1","namespace":"n"},"reason":"Failed","reportingComponent":"c","source":{"component":"c"},"type":"Warning"}"#
        );
        assert_eq!(
            text(repeated_core(&core, second)),
            r#"{"count":2,"lastTimestamp":"1970-01-01T00:00:01Z"}"#
        );
        let with_action = report.with_action(("Allocate", "c-host"), "n", "web.1", first);
        assert_eq!(
            text(repeated_with_action(&with_action, second)),
            r#"{"series":{"count":2,"lastObservedTime":"1970-01-01T00:00:01.000000Z"}}"#
        );
    }

    #[test]
    fn the_name_of_an_event_depends_on_its_identity() {
        assert_eq!(name("web", ("u", "Failed")), name("web", ("u".to_owned(), &"Failed")));
        assert_ne!(name("web", ("u", "Failed")), name("web", ("v", "Failed")));
    }
}
