//! Conversion of events between `events.k8s.io/v1` and the stored core `v1`.
//!
//! Both versions hold the same data under different names. Fields with equal names are copied unchanged.

use value::{Map, Value};

/// Names in `events.k8s.io/v1` on the left, core names on the right.
const NAMES: [(&str, &str); 7] = [
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

/// Fields that core events always contain, with their zero values.
const CORE_ZEROS: [&str; 4] = ["eventTime", "firstTimestamp", "lastTimestamp", "reportingComponent"];

/// The path of a field in a core event, if it differs: `involvedObject.kind` for `regarding.kind`.
pub fn core_field(path: &str) -> Option<String> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (_, core) = NAMES.iter().find(|(new, _)| *new == first)?;
    Some(rest.map_or_else(|| (*core).to_owned(), |rest| format!("{core}.{rest}")))
}

pub fn to_core(event: &Value) -> Value {
    let mut event = renamed(event, |new, core| (new, core));
    event.set_at(&["apiVersion"], "v1");
    let map = event.make_map();
    for field in CORE_ZEROS {
        if map.get(field).is_none() {
            let zero = if field == "reportingComponent" { Value::from("") } else { Value::Null };
            map.insert(field, zero);
        }
    }
    for field in ["involvedObject", "source"] {
        if map.get(field).is_none_or(Value::is_null) {
            map.insert(field, Map::new());
        }
    }
    if map.get("reportingInstance").is_none() {
        map.insert("reportingInstance", "");
    }
    event
}

pub fn from_core(event: &Value) -> Value {
    let mut event = renamed(event, |new, core| (core, new));
    event.set_at(&["apiVersion"], "events.k8s.io/v1");
    let map = event.make_map();
    if map.get("reportingController").and_then(Value::as_str) == Some("") {
        map.remove("reportingController");
    }
    if map.get("reportingInstance").and_then(Value::as_str) == Some("") {
        map.remove("reportingInstance");
    }
    for field in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"] {
        if map.get(field).is_none() {
            map.insert(field, Value::Null);
        }
    }
    for field in ["deprecatedSource", "regarding"] {
        if map.get(field).is_none_or(Value::is_null) {
            map.insert(field, Map::new());
        }
    }
    event
}

fn renamed(
    event: &Value,
    direction: fn(&'static str, &'static str) -> (&'static str, &'static str),
) -> Value {
    let Some(map) = event.as_map() else { return event.clone() };
    let renamed = map.iter().map(|(field, value)| {
        let name = NAMES
            .iter()
            .map(|(new, core)| direction(new, core))
            .find(|(from, _)| *from == field.as_str())
            .map_or_else(|| field.clone(), |(_, to)| to.into());
        (name, value.clone())
    });
    Value::Map(renamed.collect())
}

#[cfg(test)]
mod tests;
