//! The OpenAPI schemas and paths of custom resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::validation::fields::Read;
use crd::{CrdVersion, CustomResourceDefinition};
use kinds::table::{Verb, verbs};
use value::{Map, Str, Value};

use super::components::{self, OpenApiVersion};
use super::operations::{self, DocumentedResource, DocumentedSubresource, PathItem};

/// The verbs of custom resources, in the order in which their paths list them.
const VERBS: &[Verb] =
    &[Verb::List, Verb::Create, Verb::DeleteCollection, Verb::Get, Verb::Update, Verb::Delete, Verb::Patch];

/// Reverses the labels of a group: `stable.example.com` becomes `com.example.stable`.
fn reversed(group: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    parts.join(".")
}

/// The definition name of a kind; the prefix `=` marks it as one that is not in the type table.
fn name(crd: &CustomResourceDefinition, version: &CrdVersion, kind: &str) -> String {
    format!("={}.{}.{kind}", reversed(&crd.group), version.name)
}

/// The served versions of the CRDs of one group, or of all groups.
pub(super) fn served<'a>(
    custom: &'a [Arc<CustomResourceDefinition>],
    group: Option<&'a str>,
) -> impl Iterator<Item = (&'a CustomResourceDefinition, &'a Arc<CrdVersion>)> {
    custom
        .iter()
        .filter(move |crd| group.is_none_or(|group| crd.group == group))
        .flat_map(|crd| crd.versions.iter().map(move |version| (&**crd, version)))
        .filter(|(_, version)| version.served)
}

/// The CRDs in one version of a group.
pub(super) type CrdsOfVersion<'a> = Vec<(&'a CustomResourceDefinition, &'a Arc<CrdVersion>)>;

/// All served CRD versions by group and version.
pub(super) fn by_version(
    custom: &[Arc<CustomResourceDefinition>],
) -> BTreeMap<(&str, &str), CrdsOfVersion<'_>> {
    let mut versions: BTreeMap<(&str, &str), CrdsOfVersion<'_>> = BTreeMap::new();
    for (crd, version) in served(custom, None) {
        versions.entry((&crd.group, &version.name)).or_default().push((crd, version));
    }
    versions
}

pub(super) fn of_version<'a>(
    custom: &'a [Arc<CustomResourceDefinition>],
    group: &'a str,
    version: &str,
) -> CrdsOfVersion<'a> {
    served(custom, Some(group)).filter(|(_, found)| found.name == version).collect()
}

pub(super) fn items(group: &str, kinds: &[(&CustomResourceDefinition, &Arc<CrdVersion>)]) -> Vec<PathItem> {
    let mut items = Vec::new();
    for (crd, version) in kinds {
        let names = &crd.names;
        let object = name(crd, version, &names.kind);
        let mut subresources = Vec::new();
        if version.status {
            subresources.push(DocumentedSubresource {
                name: "status",
                kind: (&crd.group, &version.name, &names.kind),
                object: object.clone(),
                verbs: verbs::GET_PATCH_UPDATE,
            });
        }
        if version.scale.is_some() {
            subresources.push(DocumentedSubresource {
                name: "scale",
                kind: ("autoscaling", "v1", "Scale"),
                object: "autoscaling.v1.Scale".to_owned(),
                verbs: verbs::GET_PATCH_UPDATE,
            });
        }
        let resource = DocumentedResource {
            kind: &names.kind,
            plural: &names.plural,
            namespaced: crd.namespaced,
            verbs: VERBS,
            returns_deleted: false,
            list: name(crd, version, &names.list_kind),
            object,
        };
        operations::add(group, &version.name, &resource, &subresources, &mut items);
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items
}

/// The schemas of the custom resources in one version of a group, or of all, by name.
pub(super) fn schemas(
    custom: &[Arc<CustomResourceDefinition>],
    group_version: Option<(&str, &str)>,
    openapi: OpenApiVersion,
) -> Vec<(String, Value)> {
    let mut schemas = Vec::new();
    // All versions of a CRD are in one object, which is loaded only once.
    let mut loaded: Option<(&CustomResourceDefinition, Option<Value>)> = None;
    for (crd, version) in served(custom, group_version.map(|(group, _)| group)) {
        if group_version.is_some_and(|(_, wanted)| version.name != wanted) {
            continue;
        }
        let names = &crd.names;
        let object_name = name(crd, version, &names.kind);
        let list_name = name(crd, version, &names.list_kind);
        let kind = |kind: &str| {
            let kind = [("group", crd.group.as_str()), ("version", version.name.as_str()), ("kind", kind)];
            Value::list([Value::map(kind)])
        };
        if loaded.as_ref().is_none_or(|(of, _)| !std::ptr::eq(*of, crd)) {
            loaded = Some((crd, version.load()));
        }
        let source = loaded.as_ref().and_then(|(_, source)| source.as_ref());
        let mut object = whole(&version.openapi(source), crd.preserve_unknown_fields, openapi);
        object.insert("x-kubernetes-group-version-kind", kind(&names.kind));
        let mut list = Map::new();
        list.insert("type", "object");
        list.insert("description", format!("{} is a list of {}", names.list_kind, names.kind).as_str());
        list.insert("required", Value::list(["items"]));
        let described = format!("List of {}. More info: {CONVENTIONS}", names.plural);
        let items = Value::map([
            ("type", Value::from("array")),
            ("description", Value::from(described)),
            ("items", components::reference(&object_name, openapi)),
        ]);
        let mut properties = type_fields();
        properties.insert("items", items);
        let described = format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds");
        properties.insert("metadata", metadata("meta.v1.ListMeta", &described, openapi));
        list.insert("properties", Value::Map(properties));
        list.insert("x-kubernetes-group-version-kind", kind(&names.list_kind));
        if !version.selectable.is_empty() {
            let fields =
                version.selectable.iter().map(|path| Value::map([("fieldPath", Value::from(path.clone()))]));
            let fields = Value::list(fields);
            object.insert("x-kubernetes-selectable-fields", fields.clone());
            list.insert("x-kubernetes-selectable-fields", fields);
        }
        for (name, schema) in [(object_name, object), (list_name, list)] {
            let full = schema::openapi_name(&name);
            schemas.push((full, Value::Map(schema)));
        }
    }
    schemas
}

/// Base URL of the API conventions to which descriptions refer.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The `apiVersion` and `kind` fields of every resource and list.
fn type_fields() -> Map {
    let text = |description: &str, section: &str| {
        let description = format!("{description} More info: {CONVENTIONS}#{section}");
        Value::map([("type", Value::from("string")), ("description", Value::from(description))])
    };
    let mut fields = Map::new();
    fields.insert(
        "apiVersion",
        text(
            "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values.",
            "resources",
        ),
    );
    fields.insert(
        "kind",
        text(
            "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase.",
            "types-kinds",
        ),
    );
    fields
}

/// Adds the fields that every resource has: those of [`type_fields`] and object metadata.
fn add_resource_fields(schema: &mut Map, openapi: OpenApiVersion) {
    let mut fields = type_fields();
    let described = format!("Standard object's metadata. More info: {CONVENTIONS}#metadata");
    fields.insert("metadata", metadata("meta.v1.ObjectMeta", &described, openapi));
    let mut properties = match schema.remove("properties") {
        Some(Value::Map(properties)) => properties,
        _ => Map::new(),
    };
    for (name, field) in fields {
        properties.insert(name, field);
    }
    schema.insert("properties", Value::Map(properties));
}

fn metadata(name: &str, description: &str, openapi: OpenApiVersion) -> Value {
    let mut reference = components::reference(name, openapi);
    if openapi == OpenApiVersion::V3 {
        reference = Value::map([("allOf", Value::list([reference]))]);
    }
    reference.set_at(&["description"], description);
    reference
}

/// The schema of a whole resource, with the fields that every resource has.
fn whole(schema: &Value, preserve: bool, openapi: OpenApiVersion) -> Map {
    let hidden = schema.is_null()
        || openapi == OpenApiVersion::V2 && (preserve || schema.flag("x-kubernetes-preserve-unknown-fields"));
    if hidden {
        // kubectl would refuse fields that are not declared, so nothing else is.
        let mut map = Map::new();
        map.insert("type", "object");
        return map;
    }
    let mut map = part(schema, openapi);
    add_resource_fields(&mut map, openapi);
    map
}

/// Converts a schema to a openapi. Version 2 has no alternatives, nulls or defaults, and kubectl cannot descend into untyped values.
fn part(schema: &Value, openapi: OpenApiVersion) -> Map {
    let Some(map) = schema.as_map() else { return Map::new() };
    // Nested schemas are converted separately. Copying them here as well would copy them once per level.
    let is_below = |name: &str| matches!(name, "items" | "additionalProperties" | "not" | "properties");
    let fields = map.iter().filter(|(name, _)| !is_below(name));
    let mut out: Map = fields.map(|(name, field)| (name.clone(), field.clone())).collect();
    let mut below = vec!["items", "additionalProperties", "not", "properties"];
    let preserve = schema.flag("x-kubernetes-preserve-unknown-fields");
    if openapi == OpenApiVersion::V2 {
        let nullable = schema.flag("nullable");
        for field in ["allOf", "anyOf", "oneOf", "default", "nullable"] {
            out.remove(field);
        }
        let hides = nullable || preserve;
        below.retain(|field| *field == "additionalProperties" || *field != "not" && !hides);
        let untyped = nullable
            || schema.text("type") == "array" && (hides || map.get("items").is_none())
            || schema.text("type") == "object" && preserve;
        if untyped {
            out.remove("type");
        }
        let may_be_null = |name: &str| schema.part("properties").part(name).flag("nullable");
        let required: Vec<&str> = schema.texts("required").filter(|name| !may_be_null(name)).collect();
        let none = required.is_empty() || schema.part("additionalProperties").flag("nullable");
        if none {
            out.remove("required");
        } else {
            out.insert("required", Value::list(required));
        }
    }
    if openapi == OpenApiVersion::V3 && schema.flag("x-kubernetes-int-or-string") {
        say_int_or_string(&mut out);
    }
    for field in below {
        let written = match map.get(field) {
            None => continue,
            Some(Value::Map(properties)) if field == "properties" => {
                let written =
                    |(name, inner): (&Str, &Value)| (name.clone(), Value::Map(part(inner, openapi)));
                Value::Map(properties.iter().map(written).collect())
            }
            Some(inner @ Value::Map(_)) => Value::Map(part(inner, openapi)),
            Some(other) => other.clone(),
        };
        out.insert(field, written);
    }
    if schema.flag("x-kubernetes-embedded-resource") && !(openapi == OpenApiVersion::V2 && preserve) {
        add_resource_fields(&mut out, openapi);
        let mut required: Vec<&str> = schema.texts("required").collect();
        for name in ["kind", "apiVersion"] {
            if !required.contains(&name) {
                required.push(name);
            }
        }
        out.insert("required", Value::list(required));
    }
    out
}

/// Identifies the state of a group's version for its hash, without reading its schemas.
pub(super) fn stamp(kinds: &[(&CustomResourceDefinition, &Arc<CrdVersion>)]) -> String {
    let parts = kinds.iter().map(|(crd, _)| {
        let CustomResourceDefinition { name, uid, generation, names, terminating, .. } = crd;
        format!("{name} {uid} {generation} {names:?} {terminating}")
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// Adds an `anyOf` of integer and string, which all OpenAPI clients understand, unless the schema already has it.
fn say_int_or_string(schema: &mut Map) {
    let either = Value::list(["integer", "string"].map(|kind| Value::map([("type", kind)])));
    let first = schema.get("allOf").and_then(Value::as_list).and_then(<[Value]>::first);
    if schema.get("anyOf") == Some(&either) || first.and_then(|first| first.get("anyOf")) == Some(&either) {
        return;
    }
    if schema.get("anyOf").is_none() {
        schema.insert("anyOf", either);
        return;
    }
    let mut all = vec![Value::map([("anyOf", either)])];
    all.extend(schema.get("allOf").and_then(Value::as_list).unwrap_or_default().iter().cloned());
    schema.insert("allOf", Value::List(all));
}
