//! What absent values become, as the schema says.

use value::Value;

use super::node::Node;

fn is_null(value: &Value, node: Option<&Node>) -> bool {
    value.is_null() && node.is_some_and(|node| !node.nullable)
}

/// Fills in the defaults below a value.
pub(super) fn apply(value: &mut Value, node: &Node) {
    match value {
        Value::Map(map) => {
            for (name, property) in &node.properties {
                if let Some(default) = &property.default
                    && map.get(name).is_none_or(|value| is_null(value, Some(property)))
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.property(key) {
                    apply(value, property);
                } else if let Some(values) = node.values() {
                    if is_null(value, Some(values)) {
                        *value = values.default.clone().unwrap_or_default();
                    }
                    apply(value, values);
                }
            }
        }
        Value::List(items) => {
            let Some(below) = node.items.as_deref() else { return };
            for item in items {
                if is_null(item, Some(below)) {
                    *item = below.default.clone().unwrap_or_default();
                }
                apply(item, below);
            }
        }
        _ => {}
    }
}
