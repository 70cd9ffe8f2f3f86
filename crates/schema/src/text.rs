//! Parses lines of `data/schema.txt` into [`Schema`]s, and documents their format.
//!
//! The file has one line per type, sorted by name, with words separated by spaces:
//!
//! ```text
//! core.v1.PullPolicy = str Always IfNotPresent Never
//! core.v1.ResourceList = {}api.resource.Quantity
//! core.v1.ConfigMap @v1 apiVersion:str<TypeMeta binaryData:{}bytes … metadata:meta.v1.ObjectMeta+?{}
//! ```
//!
//! For a type that is not a struct, the name is followed by `= SHAPE` and the allowed values (`_` means a space, `""` an empty string).
//! For a struct, it is followed by `@GROUP/VERSION` if it is a kind, `=atomic` or `=granular`, `%UNIONS`, and its fields as
//! `NAME:SHAPE` with these marks, in this order:
//!
//! | mark | meaning |
//! |---|---|
//! | `*` | pointer in Go |
//! | `!` | required and always written; `!-` required and omitted when empty |
//! | `+` | always written |
//! | `0` | omitted when zero |
//! | `=set` `=atomic` `=map(k,…)` `=granular` | list type or map type |
//! | `^merge(k)` `^merge,retainKeys(k)` `^replace` | patch strategy and merge key |
//! | `<A.B` | declared in embedded structs |
//! | `?JSON` | default |
//!
//! A shape is `str`, `bytes`, `bool`, `i32`, `i64`, `f64`, `[]SHAPE`, `{KEY}SHAPE`, one of the special forms (`quantity`,
//! `int-or-string`, `time`, `micro-time`, `raw`, `schema-or-…`), or the name of a type, without its package if that is the same.

use value::Str;

use super::{
    Link, ListOf, ListType, MapOf, MapType, Object, Omit, Patch, Property, Schema, SchemaOr, StringEncoding,
    ValueType, types,
};

/// The word that does not have the form described above.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

static STRING: Schema = leaf(ValueType::String(StringEncoding::Plain));
static BYTES: Schema = leaf(ValueType::String(StringEncoding::Bytes));
static BOOL: Schema = leaf(ValueType::Bool);
static INT32: Schema = leaf(ValueType::Int32);
static INT64: Schema = leaf(ValueType::Int64);
static FLOAT: Schema = leaf(ValueType::Float);

const fn leaf(value_type: ValueType) -> Schema {
    Schema { name: Str::new_static(""), value_type, values: &[], format: Str::new_static("") }
}

/// Parses the schema of the type `name` from the rest of its line.
pub(super) fn schema(name: &'static str, rest: &'static str) -> Result<Schema, Malformed> {
    let package = name.rsplit_once('.').ok_or(Malformed(name))?.0;
    let mut words = rest.split(' ').filter(|word| !word.is_empty());
    if let Some(alias) = rest.strip_prefix("= ") {
        let mut words = alias.split(' ');
        let value_type = alias_type(words.next().unwrap_or_default(), package)?;
        let values: Vec<Str> = words.map(unescape).collect();
        return Ok(Schema {
            name: Str::new_static(name),
            value_type,
            values: Vec::leak(values),
            ..Schema::ANY
        });
    }
    let mut object = Object::default();
    let mut properties = Vec::new();
    for word in words.by_ref() {
        if let Some(group_version) = word.strip_prefix('@') {
            object.group_version = group_version;
        } else if word == "=atomic" {
            object.atomic = true;
        } else if word == "=granular" {
            object.granular = true;
        } else if let Some(unions) = word.strip_prefix('%') {
            object.unions = Some(unions);
        } else {
            properties.push(property(word, package)?);
        }
    }
    object.properties = properties.into();
    Ok(Schema { name: Str::new_static(name), value_type: ValueType::Object(object), ..Schema::ANY })
}

fn unescape(word: &'static str) -> Str {
    match word {
        "\"\"" => Str::new_static(""),
        _ if word.contains('_') => word.replace('_', " ").into(),
        _ => Str::new_static(word),
    }
}

/// Parses the shape of a type that is not a struct.
fn alias_type(shape: &'static str, package: &'static str) -> Result<ValueType, Malformed> {
    Ok(match shape {
        "quantity" => ValueType::String(StringEncoding::Quantity),
        "int-or-string" => ValueType::String(StringEncoding::IntOrString),
        "time" => ValueType::String(StringEncoding::Time),
        "micro-time" => ValueType::String(StringEncoding::MicroTime),
        "raw" => ValueType::Any,
        "schema-or-array" => ValueType::SchemaOr(SchemaOr::Array),
        "schema-or-bool" => ValueType::SchemaOr(SchemaOr::Bool),
        "schema-or-strings" => ValueType::SchemaOr(SchemaOr::Strings),
        "str" => ValueType::String(StringEncoding::Plain),
        "bytes" => ValueType::String(StringEncoding::Bytes),
        "i32" => ValueType::Int32,
        "i64" => ValueType::Int64,
        _ => container(shape, package, None)?.ok_or(Malformed(shape))?,
    })
}

/// Parses a list or map; `None` if the shape is neither.
fn container(
    shape: &'static str,
    package: &'static str,
    list_type: Option<ListType>,
) -> Result<Option<ValueType>, Malformed> {
    if let Some(items) = shape.strip_prefix("[]") {
        return Ok(Some(ValueType::List(ListOf { items: link(items, package, None)?, list_type })));
    }
    let Some(map) = shape.strip_prefix('{') else { return Ok(None) };
    let (key, values) = map.split_once('}').ok_or(Malformed(shape))?;
    let key = match key {
        "" => None,
        _ => Some(
            types::position(&absolute(key, package))
                .map(|position| types::at(position).name.clone())
                .ok_or(Malformed(key))?,
        ),
    };
    Ok(Some(ValueType::Map(MapOf { values: link(values, package, None)?, key, atomic: false })))
}

/// The absolute form of a type name that occurs in a line of `package`.
fn absolute(name: &str, package: &str) -> String {
    match name.strip_prefix('.') {
        Some(kind) => format!("{package}.{kind}"),
        None => name.to_owned(),
    }
}

fn link(shape: &'static str, package: &'static str, list_type: Option<ListType>) -> Result<Link, Malformed> {
    let builtin = match shape {
        "str" => &STRING,
        "bytes" => &BYTES,
        "bool" => &BOOL,
        "i32" => &INT32,
        "i64" => &INT64,
        "f64" => &FLOAT,
        _ => match container(shape, package, list_type)? {
            // Leaked on purpose: decoded once per field of the table and used until the process ends.
            Some(value_type) => Box::leak(Box::new(leaf(value_type))),
            None => {
                return types::position(&absolute(shape, package)).map(Link::Type).ok_or(Malformed(shape));
            }
        },
    };
    Ok(Link::Node(builtin))
}

/// Parses one field of a struct.
fn property(word: &'static str, package: &'static str) -> Result<Property, Malformed> {
    let malformed = || Malformed(word);
    let (name, rest) = word.split_once(':').ok_or_else(malformed)?;
    let (rest, default) = split_mark(rest, '?');
    let (rest, embedded) = split_mark(rest, '<');
    let (rest, patch) = split_mark(rest, '^');
    let (rest, order) = split_mark(rest, '=');
    let (rest, zero) = strip_mark(rest, "0");
    // Shapes such as `i64` never end in these marks, so the shape is left after stripping them.
    let (rest, empty) = strip_mark(rest, "!-");
    let (rest, required) = strip_mark(rest, "!");
    let (rest, always) = strip_mark(rest, "+");
    let (shape, pointer) = strip_mark(rest, "*");

    let omit = match (zero, required || always) {
        (true, _) => Omit::Zero,
        (false, true) => Omit::Never,
        (false, false) => Omit::Empty,
    };
    let is_list = shape.starts_with("[]");
    let (list_type, map_type) = match order {
        None => (None, None),
        Some("atomic") if is_list => (Some(ListType::Atomic), None),
        Some("set") => (Some(ListType::Set), None),
        Some("atomic") => (None, Some(MapType::Atomic)),
        Some("granular") => (None, Some(MapType::Granular)),
        Some(keys) => {
            let keys =
                keys.strip_prefix("map(").and_then(|keys| keys.strip_suffix(')')).ok_or_else(malformed)?;
            (Some(ListType::Map(keys.split(',').map(Str::new_static).collect())), None)
        }
    };
    Ok(Property {
        name: Str::new_static(name),
        schema: link(shape, package, list_type)?,
        required: required || empty,
        pointer,
        omit,
        patch: patch.map_or(Ok(Patch::default()), strategy)?,
        map_type,
        embedded,
        default: default.map(Str::new_static),
    })
}

fn strategy(text: &'static str) -> Result<Patch, Malformed> {
    let (names, merge_key) = match text.split_once('(') {
        Some((names, key)) => (names, Some(Str::new_static(key.strip_suffix(')').ok_or(Malformed(text))?))),
        None => (text, None),
    };
    let mut patch = Patch { merge_key, ..Patch::default() };
    for name in names.split(',') {
        match name {
            "merge" => patch.merge = true,
            "retainKeys" => patch.retain_keys = true,
            "replace" => patch.replace = true,
            _ => return Err(Malformed(text)),
        }
    }
    Ok(patch)
}

/// Splits at the first `mark`; the second part is its content.
fn split_mark(text: &'static str, mark: char) -> (&'static str, Option<&'static str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn strip_mark(text: &'static str, mark: &str) -> (&'static str, bool) {
    match text.strip_suffix(mark) {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}
