//! Checks whether a schema is structural: every field is specified outside of `allOf`, `anyOf`, `oneOf` and `not`, and the schemas
//! inside these only restrict values.

use api::FieldErrors;
use cel::pattern::Pattern;
use value::Value;

use api::validation::fields::{At, Read, Report};

/// Position of a schema in its parent.
#[derive(Clone, Copy, PartialEq)]
enum SchemaPosition {
    Root,
    Item,
    Field,
}

/// Why a schema cannot be converted to a structural schema at all.
pub(super) fn unreadable(schema: &Value) -> Option<String> {
    let set = |field: &str| match schema.part(field) {
        None => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Map(map)) => !map.is_empty() || field == "additionalItems",
        Some(_) => true,
    };
    let unsupported = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    if let Some((_, name)) = unsupported.into_iter().find(|(field, _)| set(field)) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    let mut below: Vec<&Value> = Vec::new();
    below.extend(schema.part("not"));
    for field in ["allOf", "anyOf", "oneOf"] {
        below.extend(schema.items(field));
    }
    if let Some(wrong) = below.iter().find_map(|schema| unreadable(schema)) {
        return Some(wrong);
    }
    if schema.flag_if_set("x-kubernetes-preserve-unknown-fields") == Some(false) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned(),
        );
    }
    if matches!(schema.part("items"), Some(Value::List(items)) if !items.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let mut below: Vec<&Value> = Vec::new();
    below.extend(schema.part("items"));
    below.extend(schema.entries("properties").map(|(_, schema)| schema));
    below.extend(schema.part("additionalProperties").filter(|schema| schema.as_map().is_some()));
    below.iter().find_map(|schema| unreadable(schema))
}

/// Everything that makes a schema non-structural, sorted by text.
pub(super) fn violations(schema: &Value, at: &At<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    invariants(schema, SchemaPosition::Root, at, &mut errors);
    completeness(schema, Some(schema), &at.to_string(), &at.to_string(), &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn invariants(schema: &Value, position: SchemaPosition, at: &At<'_>, errors: &mut FieldErrors) {
    let kind = schema.text("type");
    let embedded = schema.flag("x-kubernetes-embedded-resource");
    let int_or_string = schema.flag("x-kubernetes-int-or-string");
    let preserve = schema.flag("x-kubernetes-preserve-unknown-fields");
    match schema.part("items") {
        None if kind == "array" => errors.required(&at.field("items"), "must be specified"),
        None => {}
        Some(items) => invariants(items, SchemaPosition::Item, &at.field("items"), errors),
    }
    let properties = at.field("properties");
    for (name, property) in schema.entries("properties") {
        invariants(property, SchemaPosition::Field, &properties.key(name), errors);
    }
    let additional = schema.part("additionalProperties");
    if let Some(additional) = additional {
        let additional_at = at.field("additionalProperties");
        if position == SchemaPosition::Root {
            errors.forbidden(&additional_at, "must not be used at the root");
        }
        if additional.as_map().is_some() {
            invariants(additional, SchemaPosition::Field, &additional_at, errors);
        }
    }
    if int_or_string && preserve {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        errors.invalid(&at.field("x-kubernetes-preserve-unknown-fields"), true, detail);
    }
    if int_or_string && embedded {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        errors.invalid(&at.field("x-kubernetes-embedded-resource"), true, detail);
    }
    let skip_any_of = is_int_or_string(schema.items("anyOf"));
    let skip_first =
        schema.items("allOf").first().is_some_and(|first| is_int_or_string(first.items("anyOf")));
    restrictions(schema, skip_any_of, skip_first, position, at, errors);
    let type_at = at.field("type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(&type_at, detail);
        } else {
            errors.invalid(&type_at, kind, detail);
        }
    } else if kind.is_empty() && !int_or_string && !preserve {
        let detail = match position {
            SchemaPosition::Root => "must not be empty at the root",
            SchemaPosition::Item => "must not be empty for specified array items",
            SchemaPosition::Field => "must not be empty for specified object fields",
        };
        errors.required(&type_at, detail);
    }
    if embedded && additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&at.field("additionalProperties"), detail);
    }
    if position == SchemaPosition::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(&type_at, kind, "must be object at the root");
    }
    resource_properties(schema, position, embedded, &properties, errors);
    if embedded && !preserve && schema.map_of("properties").is_none_or(value::Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&properties, detail);
    }
}

/// Checks the types of `apiVersion`, `kind` and `metadata`, which every resource has.
fn resource_properties(
    schema: &Value,
    position: SchemaPosition,
    embedded: bool,
    properties: &At<'_>,
    errors: &mut FieldErrors,
) {
    let is_resource = position == SchemaPosition::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.part("properties").part(name).filter(|_| is_resource)
            && property.text("type") != "string"
        {
            let property_at = properties.key(name);
            errors.invalid(&property_at.field("type"), property.text("type"), "must be string");
        }
    }
    if let Some(metadata) = schema.part("properties").part("metadata") {
        let metadata_at = properties.key("metadata");
        if is_resource && metadata.text("type") != "object" {
            errors.invalid(&metadata_at.field("type"), metadata.text("type"), "must be object");
        }
        if position == SchemaPosition::Root && restricts_more_than_names(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.forbidden(&metadata_at, detail);
        }
    }
}

/// Whether the schema of `metadata` restricts more than `name` and `generateName`.
fn restricts_more_than_names(metadata: &Value) -> bool {
    let names_only = metadata.map_of("properties").is_none_or(|properties| {
        properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))
    });
    let others = specified(metadata, SchemaPosition::Field)
        .any(|field| !matches!(field, "Type" | "Default" | "Properties"));
    !names_only || others
}

/// Go names of the fields that a schema has in its structural form. There, an empty list may count as absent, and fields that
/// Kubernetes does not support are never set.
fn specified(schema: &Value, position: SchemaPosition) -> impl Iterator<Item = &'static str> {
    let empty = |field: &str| match schema.part(field) {
        None | Some(Value::Bool(false)) => true,
        Some(Value::List(items)) => items.is_empty(),
        Some(Value::Map(map)) => map.is_empty(),
        Some(_) => false,
    };
    super::quoted::fields_set(schema).filter(move |field| match *field {
        "Ref" | "PatternProperties" | "Dependencies" | "Definitions" => false,
        "Items" => schema.part("items").is_some(),
        "Enum" => !empty("enum"),
        "AllOf" => !empty("allOf"),
        "AnyOf" => !empty("anyOf"),
        "OneOf" => !empty("oneOf"),
        "Properties" => position != SchemaPosition::Field || !empty("properties"),
        "AdditionalProperties" => {
            position == SchemaPosition::Field
                || schema.part("additionalProperties") != Some(&Value::Bool(false))
        }
        _ => true,
    })
}

fn is_int_or_string(any_of: &[Value]) -> bool {
    let only = |schema: &Value, kind: &str| {
        schema.text("type") == kind && specified(schema, SchemaPosition::Item).eq(["Type"])
    };
    matches!(any_of, [first, second] if only(first, "integer") && only(second, "string"))
}

/// Checks the `pattern` of a schema and the schemas in its `allOf`, `anyOf`, `oneOf` and `not`.
fn restrictions(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    position: SchemaPosition,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let list = at.field("anyOf");
    for (i, inner) in schema.items("anyOf").iter().enumerate().filter(|_| !skip_any_of) {
        nested(inner, false, position, &list.index(i), errors);
    }
    let list = at.field("allOf");
    for (i, inner) in schema.items("allOf").iter().enumerate() {
        nested(inner, skip_first_all_of && i == 0, position, &list.index(i), errors);
    }
    let list = at.field("oneOf");
    for (i, inner) in schema.items("oneOf").iter().enumerate() {
        nested(inner, false, position, &list.index(i), errors);
    }
    if let Some(inner) = schema.part("not") {
        nested(inner, false, position, &at.field("not"), errors);
    }
    let pattern = schema.text("pattern");
    if !pattern.is_empty()
        && let Err(error) = Pattern::check(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.invalid(&at.field("pattern"), pattern, detail);
    }
}

/// Checks a schema nested in `allOf`, `anyOf`, `oneOf` or `not`.
fn nested(
    schema: &Value,
    skip_any_of: bool,
    position: SchemaPosition,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    restrictions(schema, skip_any_of, false, position, at, errors);
    if let Some(items) = schema.part("items") {
        nested(items, false, position, &at.field("items"), errors);
    }
    let properties = at.field("properties");
    for (name, property) in schema.entries("properties") {
        nested(property, false, SchemaPosition::Field, &properties.key(name), errors);
    }
    let texts = [("type", "must be empty to be structural")];
    for (field, detail) in texts {
        if !schema.text(field).is_empty() {
            errors.forbidden(&at.field(field), detail);
        }
    }
    if !matches!(schema.part("additionalProperties"), None | Some(Value::Bool(false))) {
        errors.forbidden(&at.field("additionalProperties"), "must be undefined to be structural");
    }
    if schema.part("default").is_some() {
        errors.forbidden(&at.field("default"), "must be undefined to be structural");
    }
    for field in ["title", "description"] {
        if !schema.text(field).is_empty() {
            errors.forbidden(&at.field(field), "must be empty to be structural");
        }
    }
    for field in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if schema.flag(field) {
            errors.forbidden(&at.field(field), "must be false to be structural");
        }
    }
    if !schema.items("x-kubernetes-list-map-keys").is_empty() {
        errors.forbidden(&at.field("x-kubernetes-list-map-keys"), "must be empty to be structural");
    }
    for field in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.part(field).is_some() {
            errors.forbidden(&at.field(field), "must be undefined to be structural");
        }
    }
    if !schema.items("x-kubernetes-validations").is_empty() {
        errors.forbidden(&at.field("x-kubernetes-validations"), "must be empty to be structural");
    }
    if schema.part("properties").part("metadata").is_some() {
        errors.forbidden(&properties.key("metadata"), "must not be specified in a nested context");
    }
}

/// Checks that every field that `restricts` mentions is also specified.
fn completeness(
    restricts: &Value,
    specifies: Option<&Value>,
    path: &str,
    from: &str,
    errors: &mut FieldErrors,
) {
    let Some(specified) = specifies else {
        errors.required(&At::new(path), format!("because it is defined in {from}"));
        return;
    };
    if let Some(inner) = restricts.part("not") {
        inside(inner, Some(specified), path, &format!("{from}.not"), errors);
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for (i, inner) in restricts.items(field).iter().enumerate() {
            inside(inner, Some(specified), path, &format!("{from}.{field}[{i}]"), errors);
        }
    }
}

fn inside(restricts: &Value, specifies: Option<&Value>, path: &str, from: &str, errors: &mut FieldErrors) {
    let Some(specified) = specifies else {
        errors.required(&At::new(path), format!("because it is defined in {from}"));
        return;
    };
    completeness(restricts, Some(specified), path, from, errors);
    if let Some(items) = restricts.part("items") {
        inside(items, specified.part("items"), &format!("{path}.items"), &format!("{from}.items"), errors);
    }
    for (name, property) in restricts.entries("properties") {
        let (path, from) = (format!("{path}.properties[{name}]"), format!("{from}.properties[{name}]"));
        match specified.part("properties").part(name) {
            None => errors.required(&At::new(&path), format!("because it is defined in {from}")),
            Some(specified) => inside(property, Some(specified), &path, &from, errors),
        }
    }
}
