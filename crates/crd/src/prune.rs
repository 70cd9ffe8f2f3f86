//! Drops unknown fields and optionally records their paths.
//!
//! Fields that the schema does not specify are pruned unless `x-kubernetes-preserve-unknown-fields` is set; specified fields below such
//! a node are pruned again. [`super::metadata`] handles the metadata of resources, embedded or not.

use value::{Map, Value};

use super::node::SchemaNode;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The path of the current field. It is tracked only if unknown fields are recorded.
#[derive(Debug, Default)]
pub(super) struct UnknownFields {
    path: String,
    unknown: Option<Vec<String>>,
}

impl UnknownFields {
    pub(super) fn new(record: bool) -> Self {
        UnknownFields { path: String::new(), unknown: record.then(Vec::new) }
    }

    pub(super) fn into_unknown(self) -> Vec<String> {
        let mut unknown = self.unknown.unwrap_or_default();
        unknown.sort();
        unknown
    }

    fn record(&mut self, key: &str) {
        if self.unknown.is_some() {
            let path = join(&self.path, key);
            if let Some(unknown) = &mut self.unknown {
                unknown.push(path);
            }
        }
    }

    fn below_key(&mut self, key: &str, then: impl FnOnce(&mut Self)) {
        self.below(|path| if path.is_empty() { key.to_owned() } else { format!(".{key}") }, then);
    }

    fn below_index(&mut self, index: usize, then: impl FnOnce(&mut Self)) {
        self.below(|_| format!("[{index}]"), then);
    }

    fn below(&mut self, step: impl FnOnce(&str) -> String, then: impl FnOnce(&mut Self)) {
        if self.unknown.is_none() {
            return then(self);
        }
        let length = self.path.len();
        let step = step(&self.path);
        self.path.push_str(&step);
        then(self);
        self.path.truncate(length);
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Prunes a whole resource but preserves its `apiVersion`, `kind` and `metadata`.
pub(super) fn resource(object: &mut Value, node: &SchemaNode, unknown_fields: &mut UnknownFields) {
    if let Value::Map(map) = object {
        fields(map, node, true, node.preserve, unknown_fields);
    }
}

/// Prunes a value by its schema. Without a schema, a map loses all its entries.
pub(super) fn prune(value: &mut Value, node: Option<&SchemaNode>, unknown_fields: &mut UnknownFields) {
    match (value, node) {
        (Value::Map(map), None) => {
            for key in map.keys() {
                unknown_fields.record(key);
            }
            *map = Map::new();
        }
        (Value::Map(map), Some(node)) => fields(map, node, node.embedded, node.preserve, unknown_fields),
        (Value::List(items), node) => {
            let preserve = node.is_some_and(|node| node.preserve);
            let below = node.and_then(|node| node.items.as_deref());
            for (index, item) in items.iter_mut().enumerate() {
                unknown_fields.below_index(index, |unknown_fields| match (preserve, below) {
                    (false, below) => prune(item, below, unknown_fields),
                    (true, None) => {}
                    (true, Some(below)) => keep(item, below, unknown_fields),
                });
            }
        }
        _ => {}
    }
}

/// Preserves unknown fields of a value but prunes the specified fields inside it.
fn keep(value: &mut Value, node: &SchemaNode, unknown_fields: &mut UnknownFields) {
    match value {
        Value::Map(map) => fields(map, node, node.embedded, true, unknown_fields),
        Value::List(items) => {
            let Some(below) = node.items.as_deref() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                unknown_fields.below_index(index, |unknown_fields| keep(item, below, unknown_fields));
            }
        }
        _ => {}
    }
}

fn fields(
    map: &mut Map,
    node: &SchemaNode,
    embedded: bool,
    preserve: bool,
    unknown_fields: &mut UnknownFields,
) {
    map.retain(|key, value| {
        if embedded && META.contains(&key.as_str()) {
            return true;
        }
        if let Some(property) = node.property(key) {
            unknown_fields.below_key(key, |unknown_fields| prune(value, Some(property), unknown_fields));
        } else if let Some(additional) = &node.additional {
            unknown_fields
                .below_key(key, |unknown_fields| prune(value, additional.node.as_deref(), unknown_fields));
        } else if !preserve {
            if !META.contains(&key.as_str()) || !unknown_fields.path.is_empty() {
                unknown_fields.record(key);
            }
            return false;
        }
        true
    });
}

/// Drops nulls of fields that are not nullable and have no default.
pub(super) fn nulls(value: &mut Value, node: Option<&SchemaNode>) {
    match value {
        Value::Map(map) => map.retain(|key, value| {
            let below = node.and_then(|node| match node.property(key) {
                Some(property) => Some(property),
                None => node.values(),
            });
            if value.is_null() && below.is_some_and(|node| !node.nullable && node.default.is_none()) {
                return false;
            }
            nulls(value, below);
            true
        }),
        Value::List(items) => {
            let below = node.and_then(|node| node.items.as_deref());
            for item in items {
                nulls(item, below);
            }
        }
        _ => {}
    }
}

/// Returns a pruned copy of a value.
pub(crate) fn without_unknown(value: &Value, node: &SchemaNode) -> Value {
    let mut pruned = value.clone();
    prune(&mut pruned, Some(node), &mut UnknownFields::new(false));
    pruned
}
