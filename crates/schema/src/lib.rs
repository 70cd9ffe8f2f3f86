//! Schemas of the types Kubernetes 1.37 serves, and everything that works by a schema alone: decoding, protobuf, patches, apply.
//!
//! The facts live in one text file, `data/schema.txt`, which `cargo xtask codegen` writes ([`text`] describes its form). A type is
//! decoded the first time it is asked for and kept for the life of the process; until then it costs nothing. A [`Schema`] node is
//! what decoding, patches, server-side apply, CEL declarations and OpenAPI walk: from [`of`] down through [`Object::property`],
//! [`Link::get`] and so on. CRDs compile to the same nodes (crate `crd`), so custom resources share all of this.
//!
//! [`decode::normalise`] brings an object into the form Go's decoder would give it and reports unknown fields; [`patch`] has the
//! three kinds of patches; [`apply`] is server-side apply; [`protobuf`] reads the wire format of built-in types.
//!
//! ```
//! let schema = schema::of("apps", "v1", "Deployment").unwrap();
//! let replicas = schema.field("spec").and_then(|spec| spec.field("replicas"));
//! assert!(replicas.is_some());
//!
//! let mut object = value::json::parse(br#"{"spec":{"replicas":3,"replicsa":4}}"#).unwrap();
//! let outcome = schema::decode::normalise(&mut object, schema);
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

/// One node: the schema of a value.
#[derive(Debug, Default)]
pub struct Schema {
    /// The Go type's name with its package, as `core.v1.PodSpec` or `core.v1.PullPolicy`; empty where the type has none
    /// (`[]string`).
    pub name: Str,
    /// What values look like.
    pub kind: Kind,
    /// The values a named string type may have; empty where any is allowed. Kubernetes publishes them in OpenAPI; it is
    /// validation, not decoding, that refuses others.
    pub values: &'static [Str],
    /// What a custom resource definition says of its strings beside their kind, and [`INT_OR_STRING`] for what may be either:
    /// expressions see times, durations and bytes by it.
    pub format: Str,
}

/// The format of what is an integer or a string.
pub const INT_OR_STRING: &str = "int-or-string";

/// What values of a schema look like.
#[derive(Debug, Default)]
pub enum Kind {
    /// A struct: known fields only.
    Object(Object),
    /// A map from any string to values of one schema.
    Map(MapOf),
    /// A list of values of one schema.
    List(ListOf),
    /// A string, or something written as one.
    String(Format),
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A float of 64 bits.
    Float,
    /// `true` or `false`.
    Bool,
    /// Any JSON, kept as it came.
    #[default]
    Any,
    /// The three unions of a custom resource definition's schema.
    SchemaOr(SchemaOr),
}

/// What a string means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text.
    Plain,
    /// Bytes in base64.
    Bytes,
    /// RFC 3339 to the second; `null` when zero.
    Time,
    /// RFC 3339 to the microsecond; `null` when zero.
    MicroTime,
    /// A 32-bit integer or a string.
    IntOrString,
    /// A quantity (`500m`, `1Gi`), also accepted as a number.
    Quantity,
}

/// The other half of a union with `JSONSchemaProps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A schema or a list of schemas.
    Array,
    /// A schema or a boolean.
    Bool,
    /// A schema or a list of strings.
    Strings,
}

/// A struct.
#[derive(Debug, Default)]
pub struct Object {
    /// The fields, sorted by name.
    pub properties: Box<[Property]>,
    /// Whether server-side apply takes it as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// The group and version in which this is a kind, as `apps/v1` or `v1`; `*` for the kinds that are in all of them; empty for
    /// what is not a kind.
    pub group_version: &'static str,
    /// `x-kubernetes-unions` as JSON.
    pub unions: Option<&'static str>,
    /// The schema of fields that are not among the properties, where those are kept: custom resources may say so
    /// (`additionalProperties` beside `properties`, `x-kubernetes-preserve-unknown-fields`).
    pub rest: Option<Link>,
}

/// A field of a struct.
#[derive(Debug)]
pub struct Property {
    /// The name in JSON.
    pub name: Str,
    /// The schema of its value.
    pub schema: Link,
    /// Whether the definitions list it as required.
    pub required: bool,
    /// Whether Go holds it behind a pointer, so that absent and zero differ.
    pub pointer: bool,
    /// When a typed round trip leaves it out.
    pub omit: Omit,
    /// How strategic merge patches treat it.
    pub patch: Patch,
    /// A map type said on the field, which overrides its type's.
    pub map_type: Option<MapType>,
    /// The embedded Go structs it is declared in, joined by dots; Go's decoding errors name them.
    pub embedded: Option<&'static str>,
    /// The default OpenAPI publishes, as JSON.
    pub default: Option<Str>,
}

/// When a field is left out of the JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omit {
    /// Never: an absent value is written as its zero.
    Never,
    /// When empty: null, `false`, `0`, `""`, no items; behind a pointer only null.
    #[default]
    Empty,
    /// When it is the zero of its struct.
    Zero,
}

/// How strategic merge patches treat a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists merge item by item (`merge`) instead of being replaced.
    pub merge: bool,
    /// Fields that the patch does not name are cleared (`retainKeys`).
    pub retain_keys: bool,
    /// The strategy `replace` was said, as opposed to none.
    pub replace: bool,
    /// The key that tells the items of a merged list apart; lists of scalars have none.
    pub merge_key: Option<Str>,
}

/// Whether the fields of a map or struct have owners of their own in server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// One owner for all.
    Atomic,
    /// An owner per key.
    Granular,
}

/// A map.
#[derive(Debug)]
pub struct MapOf {
    /// The schema of the values.
    pub values: Link,
    /// The named type of the keys, where it is not `string`.
    pub key: Option<Str>,
    /// Whether server-side apply takes it as one value, where the map itself says so and not the field it is in.
    pub atomic: bool,
}

/// A list.
#[derive(Debug)]
pub struct ListOf {
    /// The schema of the items.
    pub items: Link,
    /// `x-kubernetes-list-type`; a list without one is atomic.
    pub list_type: Option<ListType>,
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Not at all: one value.
    Atomic,
    /// By value.
    Set,
    /// By these keys.
    Map(Box<[Str]>),
}

/// A reference to a schema, resolved when it is followed: types may contain themselves.
#[derive(Clone, Debug)]
pub enum Link {
    /// A node of its own.
    Node(&'static Schema),
    /// A type of the table, by position.
    Type(u16),
    /// A node that lives only as long as what refers to it, as the schemas of custom resources.
    Shared(Arc<Schema>),
}

impl Link {
    /// The schema.
    pub fn get(&self) -> &Schema {
        match self {
            Link::Node(schema) => schema,
            Link::Type(position) => types::at(*position),
            Link::Shared(schema) => schema,
        }
    }
}

impl Object {
    /// The field called `name`.
    pub fn property(&self, name: &str) -> Option<&Property> {
        let at = self.properties.binary_search_by(|property| property.name.as_str().cmp(name)).ok()?;
        self.properties.get(at)
    }
}

impl Property {
    /// Whether server-side apply takes the field's value as one: an atomic struct, map or list.
    pub fn is_atomic(&self) -> bool {
        match (self.map_type, &self.schema.get().kind) {
            (Some(map_type), _) => map_type == MapType::Atomic,
            (None, Kind::Object(object)) => object.atomic,
            (None, Kind::List(list)) => matches!(list.list_type, None | Some(ListType::Atomic)),
            (None, Kind::Map(map)) => map.atomic,
            (None, _) => true,
        }
    }
}

impl Schema {
    /// Any JSON.
    pub const ANY: Schema =
        Schema { name: Str::new_static(""), kind: Kind::Any, values: &[], format: Str::new_static("") };

    /// The struct, if it is one.
    pub fn object(&self) -> Option<&Object> {
        match &self.kind {
            Kind::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The schema of the field `name`, if this is a struct that has it.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        Some(self.object()?.property(name)?.schema.get())
    }

    /// The schema of the items of this list or the values of this map.
    pub fn element(&self) -> Option<&Schema> {
        match &self.kind {
            Kind::List(list) => Some(list.items.get()),
            Kind::Map(map) => Some(map.values.get()),
            _ => None,
        }
    }

    /// The Go type's name without its package: `PodSpec`.
    pub fn struct_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// Whether this is any JSON object: what Kubernetes publishes as `type: object` and nothing more.
    pub fn is_free_object(&self) -> bool {
        matches!(self.kind, Kind::Any) && !self.name.is_empty() && self.struct_name() != "JSON"
    }

    /// The Go type as its errors print it: `v1.PodSpec`, `[]v1.Container`, `map[string]string`, `int32`.
    pub fn go_type(&self) -> String {
        if !self.name.is_empty() {
            return go_name(&self.name);
        }
        match &self.kind {
            Kind::Map(map) => {
                format!(
                    "map[{}]{}",
                    map.key.as_deref().map_or_else(|| "string".to_owned(), go_name),
                    map.values.get().go_type()
                )
            }
            Kind::List(list) => format!("[]{}", list.items.get().go_type()),
            Kind::String(Format::Bytes) => "[]uint8".to_owned(),
            Kind::String(_) => "string".to_owned(),
            Kind::Int32 => "int32".to_owned(),
            Kind::Int64 => "int64".to_owned(),
            Kind::Float => "float64".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Object(_) | Kind::Any | Kind::SchemaOr(_) => "interface {}".to_owned(),
        }
    }

    /// The definition's full name in OpenAPI: `io.k8s.api.core.v1.PodSpec`.
    pub fn definition(&self) -> String {
        definition_name(&self.name)
    }
}

/// `core.v1.PodSpec` → `v1.PodSpec`: Go prints the package's own name only.
fn go_name(name: &str) -> String {
    let mut parts = name.rsplit('.');
    match (parts.next(), parts.next()) {
        (Some(kind), Some(package)) => format!("{package}.{kind}"),
        _ => name.to_owned(),
    }
}

/// A type's full name in OpenAPI, from its short one.
pub fn definition_name(name: &str) -> String {
    // Definitions of custom resources are known by their full names.
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
