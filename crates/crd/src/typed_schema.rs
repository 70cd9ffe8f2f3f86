//! Converts a CRD schema into the [`Schema`] that patches and server-side apply use.

use std::sync::Arc;

use schema::{
    Link, ListOf, ListType, MapOf, MapType, Object, Omit, Patch, Property, Schema, StringEncoding, ValueType,
};
use value::{Str, write};

use super::node::SchemaNode;

/// The schema of a whole resource: the specified fields and standard object metadata.
///
/// `open` preserves unknown fields everywhere. `x-kubernetes-preserve-unknown-fields` does so for a node and, in server-side apply, for
/// everything below it.
pub(super) fn resource(node: &SchemaNode, open: bool) -> Schema {
    let mut schema = of(node, open);
    if let ValueType::Map(map) = &mut schema.value_type {
        // The standard fields of a resource make it an object instead of a free-form map.
        let keeps = open || node.preserve || node.additional.as_ref().is_some_and(|more| more.allows);
        let rest = keeps.then(|| std::mem::replace(&mut map.values, any()));
        schema.value_type = ValueType::Object(Object { atomic: map.atomic, rest, ..Object::default() });
    }
    let metadata = schema::named("meta.v1.ObjectMeta").map_or_else(any, Link::Node);
    if let ValueType::Object(object) = &mut schema.value_type {
        let mut properties: Vec<Property> = std::mem::take(&mut object.properties).into_vec();
        properties.retain(|property| !matches!(property.name.as_str(), "apiVersion" | "kind" | "metadata"));
        properties.push(property("apiVersion".into(), text(), None));
        properties.push(property("kind".into(), text(), None));
        properties.push(property("metadata".into(), metadata, None));
        properties.sort_by(|a, b| a.name.cmp(&b.name));
        object.properties = properties.into();
    }
    schema
}

fn any() -> Link {
    Link::Shared(Arc::new(Schema::default()))
}

fn text() -> Link {
    Link::Shared(Arc::new(Schema {
        value_type: ValueType::String(StringEncoding::Plain),
        ..Schema::default()
    }))
}

fn property(name: Str, schema: Link, map_type: Option<MapType>) -> Property {
    Property {
        name,
        schema,
        required: false,
        pointer: true,
        omit: Omit::Empty,
        patch: Patch::default(),
        map_type,
        embedded: None,
        default: None,
    }
}

fn link(node: &SchemaNode, open: bool) -> Link {
    Link::Shared(Arc::new(if node.embedded { resource(node, open) } else { of(node, open) }))
}

fn map_type(node: &SchemaNode) -> Option<MapType> {
    match node.map_type.as_deref() {
        Some("atomic") => Some(MapType::Atomic),
        Some("granular") => Some(MapType::Granular),
        _ => None,
    }
}

fn of(node: &SchemaNode, open: bool) -> Schema {
    let open = open || node.preserve;
    let atomic = node.map_type.as_deref() == Some("atomic");
    let value_type = match node.kind.as_str() {
        _ if node.int_or_string => ValueType::Any,
        "object" if node.properties.is_empty() && !node.embedded => {
            let values = node.values().map_or_else(any, |values| link(values, open));
            ValueType::Map(MapOf { values, key: None, atomic })
        }
        "object" => {
            let properties = node.properties.iter().map(|(name, node)| Property {
                // List map keys of an item may come from defaults.
                default: node.default.as_ref().map(|value| write::to_string(value).into()),
                ..property(name.clone(), link(node, open), map_type(node))
            });
            ValueType::Object(Object {
                properties: properties.collect(),
                atomic,
                rest: open.then(any),
                ..Object::default()
            })
        }
        "array" => {
            let list_type = match node.list_type.as_deref() {
                Some("set") => Some(ListType::Set),
                Some("map") => Some(ListType::Map(node.list_map_keys.clone().into())),
                Some(_) => Some(ListType::Atomic),
                None => None,
            };
            let items = node.items.as_deref().map_or_else(any, |items| link(items, open));
            ValueType::List(ListOf { items, list_type })
        }
        "string" => ValueType::String(StringEncoding::Plain),
        "integer" => ValueType::Int64,
        "number" => ValueType::Float,
        "boolean" => ValueType::Bool,
        _ => ValueType::Any,
    };
    let format = match &node.checks {
        _ if node.int_or_string => Str::new_static(schema::INT_OR_STRING),
        Some(checks) => checks.format.clone(),
        None => Str::default(),
    };
    Schema { value_type, format, ..Schema::default() }
}
