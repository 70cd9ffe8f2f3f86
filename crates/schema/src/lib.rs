//! Schemas of the types in Kubernetes 1.37, and everything that depends only on a schema: decoding, protobuf, patches and server-side
//! apply.
//!
//! All types are described in one text file, `data/schema.txt`, which `cargo xtask codegen` generates ([`text`] documents its format).
//! A type is decoded on first use and cached until the process ends. Decoding, patches, server-side apply, CEL declarations and OpenAPI
//! all walk [`Schema`] nodes: from [`of`] down through [`Object::property`], [`Link::get`] and so on. CRDs compile to the same nodes
//! (crate `crd`), so custom resources share all of this.
//!
//! [`decode::normalize`] converts an object to the form that Go's decoder would produce and reports unknown fields; [`patch`]
//! implements the three types of patches; [`apply`] is server-side apply; [`protobuf`] decodes built-in types from protobuf.
//!
//! ```
//! let schema = schema::of("apps", "v1", "Deployment").unwrap();
//! let replicas = schema.field("spec").and_then(|spec| spec.field("replicas"));
//! assert!(replicas.is_some());
//!
//! let mut object = value::json::parse(br#"{"spec":{"replicas":3,"replicsa":4}}"#).unwrap();
//! let outcome = schema::decode::normalize(&mut object, schema);
//! assert_eq!(outcome.unknown, ["spec.replicsa"]);
//! ```

pub mod apply;
pub mod decode;
pub mod patch;
pub mod protobuf;
#[cfg(test)]
mod tests;
mod text;
mod types;

use std::sync::Arc;

use value::Str;

pub use types::{all, named, of};

/// The schema of a value.
#[derive(Debug, Default)]
pub struct Schema {
    /// Name of the Go type with its package, such as `core.v1.PodSpec` or `core.v1.PullPolicy`; empty for unnamed types (`[]string`).
    pub name: Str,
    pub value_type: ValueType,
    /// The values of an enumerated string type; empty if any value is allowed. They are published in OpenAPI, but enforced by
    /// validation and not by decoding.
    pub values: &'static [Str],
    /// The `format` of strings in a CRD, or [`INT_OR_STRING`]. CEL derives timestamps, durations and bytes from it.
    pub format: Str,
}

/// The format of values that are an integer or a string.
pub const INT_OR_STRING: &str = "int-or-string";

#[derive(Debug, Default)]
pub enum ValueType {
    /// A struct, which has only known fields.
    Object(Object),
    /// A map from any string to values of one schema.
    Map(MapOf),
    /// A list of values of one schema.
    List(ListOf),
    /// A string, or a type encoded as one.
    String(StringEncoding),
    Int32,
    Int64,
    Float,
    Bool,
    /// Any JSON, preserved as it is.
    #[default]
    Any,
    /// One of the three unions in the schema of a CRD.
    SchemaOr(SchemaOr),
}

/// The meaning of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringEncoding {
    Plain,
    /// Bytes encoded in base64.
    Bytes,
    /// RFC 3339 with seconds; `null` when zero.
    Time,
    /// RFC 3339 with microseconds; `null` when zero.
    MicroTime,
    /// A 32-bit integer or a string.
    IntOrString,
    /// A quantity (`500m`, `1Gi`), also accepted as a number.
    Quantity,
}

/// The alternative in a union with `JSONSchemaProps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A schema or a list of schemas.
    Array,
    /// A schema or a boolean.
    Bool,
    /// A schema or a list of strings.
    Strings,
}

#[derive(Debug, Default)]
pub struct Object {
    /// The fields, sorted by name.
    pub properties: Box<[Property]>,
    /// Whether server-side apply treats it as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether it is declared as granular (`x-kubernetes-map-type: granular`), which is what other structs are anyway.
    pub granular: bool,
    /// The group and version in which this type is a kind, such as `apps/v1` or `v1`; `*` for kinds that exist in all of them; empty
    /// for other types.
    pub group_version: &'static str,
    /// The extension `x-kubernetes-unions` as JSON.
    pub unions: Option<&'static str>,
    /// The schema of undeclared fields, if they are preserved. CRDs can request that with `additionalProperties` beside `properties` or
    /// with `x-kubernetes-preserve-unknown-fields`.
    pub rest: Option<Link>,
}

#[derive(Debug)]
pub struct Property {
    /// Name of the field in JSON.
    pub name: Str,
    pub schema: Link,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// Whether it is a pointer in Go, so that absent and zero differ.
    pub pointer: bool,
    /// When a typed round trip omits it.
    pub omit: Omit,
    pub patch: Patch,
    /// A map type declared on the field, which overrides that of its type.
    pub map_type: Option<MapType>,
    /// The embedded Go structs that declare it, joined by dots; Go's decoding errors include them.
    pub embedded: Option<&'static str>,
    /// The default published in OpenAPI, as JSON.
    pub default: Option<Str>,
}

/// When a field is omitted from JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omit {
    /// Never: an absent value is written as its zero value.
    Never,
    /// When empty: null, `false`, `0`, `""` or without items; for a pointer only null.
    #[default]
    Empty,
    /// When it equals the zero value of its struct.
    Zero,
}

/// How strategic merge patches treat a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists merge item by item (`merge`) instead of being replaced.
    pub merge: bool,
    /// Fields that the patch does not set are cleared (`retainKeys`).
    pub retain_keys: bool,
    /// The strategy `replace` is declared explicitly.
    pub replace: bool,
    /// The key that identifies the items of a merged list; lists of scalars have none.
    pub merge_key: Option<Str>,
}

/// Whether server-side apply tracks the fields of a map or struct individually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// One owner for the whole map.
    Atomic,
    /// One owner for each key.
    Granular,
}

#[derive(Debug)]
pub struct MapOf {
    pub values: Link,
    /// The named type of the keys, if it is not `string`.
    pub key: Option<Str>,
    /// Whether server-side apply treats it as one value because of its own map type, not that of the field that contains it.
    pub atomic: bool,
}

#[derive(Debug)]
pub struct ListOf {
    pub items: Link,
    /// The extension `x-kubernetes-list-type`; a list without it is atomic.
    pub list_type: Option<ListType>,
}

/// How server-side apply identifies the items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Items have no identity: the list is one value.
    Atomic,
    /// Each item is identified by its value.
    Set,
    /// Each item is identified by these keys.
    Map(Box<[Str]>),
}

/// A reference to a schema, resolved on use because types may be recursive.
#[derive(Clone, Debug)]
pub enum Link {
    /// A node outside the type table.
    Node(&'static Schema),
    /// An index into the type table.
    Type(u16),
    /// A node that is freed with its last reference, such as the schemas of custom resources.
    Shared(Arc<Schema>),
}

impl Link {
    pub fn get(&self) -> &Schema {
        match self {
            Link::Node(schema) => schema,
            Link::Type(position) => types::at(*position),
            Link::Shared(schema) => schema,
        }
    }
}

impl Object {
    pub fn property(&self, name: &str) -> Option<&Property> {
        let at = self.properties.binary_search_by(|property| property.name.as_str().cmp(name)).ok()?;
        self.properties.get(at)
    }
}

impl Property {
    /// Whether server-side apply treats the field's value as one: an atomic struct, map or list, or a scalar.
    pub fn is_atomic(&self) -> bool {
        match (self.map_type, &self.schema.get().value_type) {
            (Some(map_type), _) => map_type == MapType::Atomic,
            (None, ValueType::Object(object)) => object.atomic,
            (None, ValueType::List(list)) => matches!(list.list_type, None | Some(ListType::Atomic)),
            (None, ValueType::Map(map)) => map.atomic,
            (None, _) => true,
        }
    }
}

impl Schema {
    /// The schema of any JSON value.
    pub const ANY: Schema = Schema {
        name: Str::new_static(""),
        value_type: ValueType::Any,
        values: &[],
        format: Str::new_static(""),
    };

    pub fn object(&self) -> Option<&Object> {
        match &self.value_type {
            ValueType::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The schema of the field `name`, if this is a struct that has it.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        Some(self.object()?.property(name)?.schema.get())
    }

    /// The schema of list items or map values.
    pub fn element(&self) -> Option<&Schema> {
        match &self.value_type {
            ValueType::List(list) => Some(list.items.get()),
            ValueType::Map(map) => Some(map.values.get()),
            _ => None,
        }
    }

    /// The Go type's name without its package: `PodSpec`.
    pub fn struct_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// Whether this is any JSON object, which Kubernetes publishes as `type: object` without further detail.
    pub fn is_free_object(&self) -> bool {
        matches!(self.value_type, ValueType::Any) && !self.name.is_empty() && self.struct_name() != "JSON"
    }

    /// The Go type as printed in errors: `v1.PodSpec`, `[]v1.Container`, `map[string]string`, `int32`.
    pub fn go_type(&self) -> String {
        if !self.name.is_empty() {
            return go_name(&self.name);
        }
        match &self.value_type {
            ValueType::Map(map) => {
                format!(
                    "map[{}]{}",
                    map.key.as_deref().map_or_else(|| "string".to_owned(), go_name),
                    map.values.get().go_type()
                )
            }
            ValueType::List(list) => format!("[]{}", list.items.get().go_type()),
            ValueType::String(StringEncoding::Bytes) => "[]uint8".to_owned(),
            ValueType::String(_) => "string".to_owned(),
            ValueType::Int32 => "int32".to_owned(),
            ValueType::Int64 => "int64".to_owned(),
            ValueType::Float => "float64".to_owned(),
            ValueType::Bool => "bool".to_owned(),
            ValueType::Object(_) | ValueType::Any | ValueType::SchemaOr(_) => "interface {}".to_owned(),
        }
    }

    /// Full name of the type in OpenAPI: `io.k8s.api.core.v1.PodSpec`.
    pub fn openapi_name(&self) -> String {
        openapi_name(&self.name)
    }
}

/// Converts `core.v1.PodSpec` to `v1.PodSpec`: Go prints only the last component of the package.
fn go_name(name: &str) -> String {
    let mut parts = name.rsplit('.');
    match (parts.next(), parts.next()) {
        (Some(kind), Some(package)) => format!("{package}.{kind}"),
        _ => name.to_owned(),
    }
}

/// Converts the short name of a type to its full name in OpenAPI.
pub fn openapi_name(name: &str) -> String {
    // Types of custom resources are registered by their full names.
    if let Some(own) = name.strip_prefix('=') {
        return own.to_owned();
    }
    let family = match name.split('.').next().unwrap_or_default() {
        "meta" => "io.k8s.apimachinery.pkg.apis",
        "api" | "runtime" | "util" | "version" => "io.k8s.apimachinery.pkg",
        "apiextensions" => "io.k8s.apiextensions-apiserver.pkg.apis",
        "apiregistration" => "io.k8s.kube-aggregator.pkg.apis",
        _ => "io.k8s.api",
    };
    format!("{family}.{name}")
}
