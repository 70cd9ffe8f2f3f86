//! `autoscaling/v1` Scale, the object of the `scale` subresource.

use value::{Map, Value};

/// Builds the Scale of `object`. Zero replicas of the spec and an empty selector are left out, as Go's encoder does.
pub fn build(object: &Value, spec_replicas: i64, status_replicas: i64, selector: &str) -> Value {
    let mut metadata = Map::new();
    for field in ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"] {
        if let Some(value) = object.at(&["metadata", field]).filter(|value| !value.is_null()) {
            metadata.insert(field, value.clone());
        }
    }
    let mut spec = Map::new();
    if spec_replicas != 0 {
        spec.insert("replicas", spec_replicas);
    }
    let mut status = Map::new();
    status.insert("replicas", status_replicas);
    if !selector.is_empty() {
        status.insert("selector", selector);
    }
    Value::map([
        ("apiVersion", Value::from("autoscaling/v1")),
        ("kind", "Scale".into()),
        ("metadata", Value::Map(metadata)),
        ("spec", Value::Map(spec)),
        ("status", Value::Map(status)),
    ])
}
