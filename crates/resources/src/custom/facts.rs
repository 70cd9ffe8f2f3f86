//! A schema of a definition as the facts that patches and server-side apply walk.

use std::sync::Arc;

use value::Str;

use super::node::Node;
use crate::schema::{
    self, Format, Kind, Link, ListOf, ListType, MapOf, MapType, Object, Omit, Patch, Property, Schema,
};

/// The schema of a whole resource: what is specified, and the metadata that every resource has.
pub(super) fn resource(node: &Node) -> Schema {
    let mut schema = of(node);
    let metadata = schema::named("meta.v1.ObjectMeta").map_or_else(any, Link::Node);
    if let Kind::Object(object) = &mut schema.kind {
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
    Link::Shared(Arc::new(Schema { kind: Kind::String(Format::Plain), ..Schema::default() }))
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

fn link(node: &Node) -> Link {
    if node.embedded {
        return Link::Shared(Arc::new(resource(node)));
    }
    Link::Shared(Arc::new(of(node)))
}

fn map_type(node: &Node) -> Option<MapType> {
    match node.map_type.as_deref() {
        Some("atomic") => Some(MapType::Atomic),
        Some("granular") => Some(MapType::Granular),
        _ => None,
    }
}

fn of(node: &Node) -> Schema {
    let kind = match node.kind.as_str() {
        _ if node.int_or_string => Kind::Any,
        "object" => match node.values() {
            Some(values) if node.properties.is_empty() => Kind::Map(MapOf {
                values: link(values),
                key: None,
                atomic: node.map_type.as_deref() == Some("atomic"),
            }),
            _ if node.properties.is_empty() && !node.embedded => Kind::Any,
            _ => {
                let properties = node
                    .properties
                    .iter()
                    .map(|(name, node)| property(name.clone(), link(node), map_type(node)));
                Kind::Object(Object {
                    properties: properties.collect(),
                    atomic: node.map_type.as_deref() == Some("atomic"),
                    open: node.preserve,
                    ..Object::default()
                })
            }
        },
        "array" => {
            let list_type = match node.list_type.as_deref() {
                Some("set") => Some(ListType::Set),
                Some("map") => Some(ListType::Map(node.list_map_keys.clone().into())),
                Some(_) => Some(ListType::Atomic),
                None => None,
            };
            let items = node.items.as_deref().map_or_else(any, link);
            Kind::List(ListOf { items, list_type })
        }
        "string" => Kind::String(Format::Plain),
        "integer" => Kind::Int64,
        "number" => Kind::Float,
        "boolean" => Kind::Bool,
        _ => Kind::Any,
    };
    Schema { kind, ..Schema::default() }
}
