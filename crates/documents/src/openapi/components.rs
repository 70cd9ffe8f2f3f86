//! Converts a [`Schema`] to its OpenAPI form, v2 or v3.

use std::collections::{BTreeMap, BTreeSet};

use api::GroupVersion;
use value::{Map, Str, Value, json};

use schema::{
    Link, ListType, MapType, Object, Patch, Property, Schema, StringEncoding, ValueType, openapi_name,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiVersion {
    /// Swagger 2.0: no `oneOf`, no defaults, `$ref` with siblings.
    V2,
    V3,
}

impl OpenApiVersion {
    fn reference(self, name: &str) -> Value {
        let prefix = match self {
            OpenApiVersion::V2 => "#/definitions/",
            OpenApiVersion::V3 => "#/components/schemas/",
        };
        Value::map([("$ref", format!("{prefix}{}", openapi_name(name)))])
    }
}

/// A reference to the definition of a type by its short name.
pub(super) fn reference(name: &str, openapi: OpenApiVersion) -> Value {
    openapi.reference(name)
}

/// The definitions of `roots` and of all types they refer to, by full name. Kinds that exist in every group and version list those of
/// `everywhere`.
pub(super) fn definitions(
    roots: BTreeSet<String>,
    everywhere: &[(&str, &str)],
    openapi: OpenApiVersion,
) -> Map {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let mut wanted: Vec<String> = roots.into_iter().collect();
    while let Some(name) = wanted.pop() {
        let full = openapi_name(&name);
        if found.contains_key(&full) {
            continue;
        }
        let Some(schema) = schema::named(&name) else { continue };
        found.insert(full, definition(schema, everywhere, openapi));
        if let Some(object) = schema.object() {
            for property in &object.properties {
                mentions(&property.schema, &mut wanted);
            }
        }
    }
    found.into_iter().map(|(name, definition)| (name.into(), definition)).collect()
}

/// Collects the types with their own definition to which a field refers.
fn mentions(link: &Link, wanted: &mut Vec<String>) {
    let schema = link.get();
    if has_definition(schema) {
        wanted.push(schema.name.to_string());
        return;
    }
    match &schema.value_type {
        ValueType::List(list) => mentions(&list.items, wanted),
        ValueType::Map(map) => mentions(&map.values, wanted),
        _ => {}
    }
}

/// Whether a type has its own definition. Named scalars, lists and maps are inlined instead.
fn has_definition(schema: &Schema) -> bool {
    !schema.name.is_empty()
        && match &schema.value_type {
            ValueType::Object(_) | ValueType::Any | ValueType::SchemaOr(_) => true,
            ValueType::String(format) => !matches!(format, StringEncoding::Plain | StringEncoding::Bytes),
            _ => false,
        }
}

fn definition(schema: &Schema, everywhere: &[(&str, &str)], openapi: OpenApiVersion) -> Value {
    let typed = |kind: &str| Map::from_iter([("type".into(), kind.into())]);
    let mut map = match &schema.value_type {
        ValueType::Object(object) => return object_definition(schema, object, everywhere, openapi),
        ValueType::Any if schema.struct_name() == "JSON" => Map::new(),
        ValueType::SchemaOr(_) => Map::new(),
        ValueType::Any => typed("object"),
        ValueType::String(StringEncoding::Quantity) if openapi == OpenApiVersion::V3 => {
            one_of(["string", "number"])
        }
        ValueType::String(StringEncoding::IntOrString) if openapi == OpenApiVersion::V3 => {
            one_of(["integer", "string"])
        }
        _ => typed("string"),
    };
    match schema.value_type {
        ValueType::String(StringEncoding::IntOrString) => map.insert("format", "int-or-string"),
        ValueType::String(StringEncoding::Time | StringEncoding::MicroTime) => {
            map.insert("format", "date-time")
        }
        _ => None,
    };
    Value::Map(map)
}

fn one_of(kinds: [&str; 2]) -> Map {
    Map::from_iter([("oneOf".into(), Value::list(kinds.map(|kind| Value::map([("type", kind)]))))])
}

fn object_definition(
    schema: &Schema,
    object: &Object,
    everywhere: &[(&str, &str)],
    openapi: OpenApiVersion,
) -> Value {
    let mut map = Map::new();
    map.insert("type", "object");
    if !object.properties.is_empty() {
        let properties = object.properties.iter().map(|p| (p.name.clone(), property(p, openapi)));
        map.insert("properties", Value::map(properties));
    }
    let required: Vec<Value> =
        object.properties.iter().filter(|p| p.required).map(|p| p.name.clone().into()).collect();
    if !required.is_empty() {
        map.insert("required", required);
    }
    if object.atomic {
        map.insert("x-kubernetes-map-type", "atomic");
    } else if object.granular {
        map.insert("x-kubernetes-map-type", "granular");
    }
    if let Some(unions) = object.unions.and_then(|text| json::parse(text.as_bytes()).ok()) {
        map.insert("x-kubernetes-unions", unions);
    }
    let kind = |group: &str, version: &str| {
        Value::map([("group", group), ("version", version), ("kind", schema.struct_name())])
    };
    match object.group_version {
        "" => {}
        "*" => {
            let kinds = everywhere.iter().map(|(group, version)| kind(group, version));
            map.insert("x-kubernetes-group-version-kind", Value::list(kinds));
        }
        group_version => {
            let (group, version) = GroupVersion::split(group_version);
            map.insert("x-kubernetes-group-version-kind", Value::list([kind(group, version)]));
        }
    }
    Value::Map(map)
}

fn property(property: &Property, openapi: OpenApiVersion) -> Value {
    let schema = property.schema.get();
    let mut map = match inline(schema, openapi) {
        // In 3.0 a reference has no siblings, so it goes into an `allOf`.
        Value::Map(map) if openapi == OpenApiVersion::V3 && map.contains_key("$ref") => {
            Map::from_iter([("allOf".into(), Value::list([Value::Map(map)]))])
        }
        Value::Map(map) => map,
        _ => Map::new(),
    };
    if openapi == OpenApiVersion::V3
        && let Some(default) = property.default.as_ref().and_then(|text| json::parse(text.as_bytes()).ok())
    {
        map.insert("default", default);
    }
    match property.map_type {
        // Bytes are a list in Go, so this is a list type.
        Some(MapType::Atomic) if matches!(schema.value_type, ValueType::String(_)) => {
            map.insert("x-kubernetes-list-type", "atomic")
        }
        Some(MapType::Atomic) => map.insert("x-kubernetes-map-type", "atomic"),
        Some(MapType::Granular) => map.insert("x-kubernetes-map-type", "granular"),
        None => None,
    };
    if let Some(strategy) = strategy(&property.patch) {
        map.insert("x-kubernetes-patch-strategy", strategy);
    }
    if let Some(key) = &property.patch.merge_key {
        map.insert("x-kubernetes-patch-merge-key", key.clone());
    }
    Value::Map(map)
}

fn strategy(patch: &Patch) -> Option<&'static str> {
    match (patch.merge, patch.retain_keys, patch.replace) {
        (true, true, _) => Some("merge,retainKeys"),
        (true, false, _) => Some("merge"),
        (false, true, _) => Some("retainKeys"),
        (false, false, true) => Some("replace"),
        (false, false, false) => None,
    }
}

/// A reference to a schema if it has a definition, otherwise the schema itself.
fn inline(schema: &Schema, openapi: OpenApiVersion) -> Value {
    if has_definition(schema) {
        return openapi.reference(&schema.name);
    }
    let mut map = Map::new();
    let mut typed = |kind: &str, format: Option<&str>| {
        map.insert("type", kind);
        if let Some(format) = format {
            map.insert("format", format);
        }
    };
    match &schema.value_type {
        ValueType::String(StringEncoding::Bytes) => typed("string", Some("byte")),
        ValueType::String(_) => typed("string", None),
        ValueType::Int32 => typed("integer", Some("int32")),
        ValueType::Int64 => typed("integer", Some("int64")),
        ValueType::Float => typed("number", Some("double")),
        ValueType::Bool => typed("boolean", None),
        ValueType::Object(_) | ValueType::Any | ValueType::SchemaOr(_) => typed("object", None),
        ValueType::Map(map_of) => {
            typed("object", None);
            map.insert("additionalProperties", inline(map_of.values.get(), openapi));
        }
        ValueType::List(list) => {
            typed("array", None);
            map.insert("items", inline(list.items.get(), openapi));
            match &list.list_type {
                None => {}
                Some(ListType::Atomic) => {
                    map.insert("x-kubernetes-list-type", "atomic");
                }
                Some(ListType::Set) => {
                    map.insert("x-kubernetes-list-type", "set");
                }
                Some(ListType::Map(keys)) => {
                    map.insert("x-kubernetes-list-type", "map");
                    map.insert("x-kubernetes-list-map-keys", Value::list(keys.iter().cloned()));
                }
            }
        }
    }
    if !schema.values.is_empty() {
        map.insert("enum", Value::list(schema.values.iter().map(Str::clone)));
    }
    Value::Map(map)
}
