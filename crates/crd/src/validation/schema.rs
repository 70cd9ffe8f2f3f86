//! Validates each schema of a CRD: types, extensions, and CEL rules with their estimated costs.

mod rules;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::validation::fields::{At, Read, Report};
use value::{Value, write};

use self::rules::too_costly;
use super::extensions::extensions;
use super::quoted;
use super::strictness::Strictness;

/// CEL cost limit of one expression.
const MOST_PER_RULE: u64 = 10_000_000;
/// CEL cost limit of all expressions of a schema together.
const MOST_PER_SCHEMA: u64 = 100_000_000;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Properties that a schema inherits from its parents.
#[derive(Clone, Copy)]
struct SchemaContext<'a> {
    /// Whether it is the schema of a version, which is below no other.
    is_root: bool,
    /// Why defaults are not allowed; `None` if they are.
    no_defaults: Option<&'a str>,
    inside_metadata: bool,
    /// Path of the outermost list or map below which old and new values cannot be correlated.
    uncorrelatable: Option<&'a At<'a>>,
}

/// How often a value of the schema can occur; `None` if the schema does not limit it.
#[derive(Clone, Copy)]
struct Cardinality(Option<u64>);

impl Cardinality {
    /// How often the values directly inside a value of `schema` can occur.
    fn below(self, schema: &Value) -> Self {
        Cardinality(self.0.zip(most_elements(schema)).map(|(a, b)| a.saturating_mul(b)))
    }
}

struct SchemaValidator<'s> {
    strict: &'s Strictness,
    suppress_costs: bool,
    schema_errors: FieldErrors,
    rule_errors: FieldErrors,
    total: u64,
    /// The most expensive expressions, as paths and estimated costs.
    costliest: Vec<(String, u64)>,
}

/// Validates a schema and all schemas below it. Rules are compiled only if the schema is structural and its defaults are valid
/// (`with_rules`).
pub(super) fn check(
    schema: &Value,
    at: &At<'_>,
    strict: &Strictness,
    suppress_costs: bool,
    with_rules: bool,
    errors: &mut FieldErrors,
) {
    let mut validator = SchemaValidator {
        strict,
        suppress_costs,
        schema_errors: FieldErrors::new(),
        rule_errors: FieldErrors::new(),
        total: 0,
        costliest: Vec::new(),
    };
    let context =
        SchemaContext { is_root: true, no_defaults: None, inside_metadata: false, uncorrelatable: None };
    let cardinality = with_rules.then_some(Cardinality(Some(1)));
    validator.schema(schema, at, context, cardinality);
    errors.append(&mut validator.schema_errors);
    errors.append(&mut validator.rule_errors);
    if validator.total > MOST_PER_SCHEMA {
        for (path, _) in &validator.costliest {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(&At::new(path), detail);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(at, too_costly(what, validator.total, MOST_PER_SCHEMA));
    }
}

impl SchemaValidator<'_> {
    fn schema(
        &mut self,
        schema: &Value,
        at: &At<'_>,
        context: SchemaContext<'_>,
        cardinality: Option<Cardinality>,
    ) {
        let errors_before = self.schema_errors.len();
        self.standard(schema, at, context);
        if schema.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.schema_errors.forbidden(&at.field("uniqueItems"), detail);
        }
        let below = cardinality.map(|cardinality| cardinality.below(schema));
        self.properties(schema, at, context, below);
        let inside = SchemaContext { is_root: false, ..context };
        self.alternatives(schema, at, inside);
        if let Some(items) = schema.part("items") {
            let keyed = schema.text_if_set("x-kubernetes-list-type") == Some("map");
            let uncorrelatable =
                if keyed { context.uncorrelatable } else { context.uncorrelatable.or(Some(at)) };
            let inside = SchemaContext { uncorrelatable, ..inside };
            let items_at = at.field("items");
            match items {
                Value::List(items) => {
                    for (i, item) in items.iter().enumerate() {
                        self.schema(item, &items_at.index(i), inside, below);
                    }
                }
                item => self.schema(item, &items_at, inside, below),
            }
        }
        for (name, dependency) in schema.entries("dependencies").filter(|(_, d)| d.as_map().is_some()) {
            let dependencies_at = at.field("dependencies");
            self.schema(dependency, &dependencies_at.key(name), inside, None);
        }
        extensions(schema, self.strict, at, &mut self.schema_errors);
        self.rules(schema, at, context, cardinality, errors_before);
    }

    /// Rejects parts of JSON Schema that Kubernetes does not support.
    fn standard(&mut self, schema: &Value, at: &At<'_>, context: SchemaContext<'_>) {
        let errors = &mut self.schema_errors;
        let kind = schema.text("type");
        if self.strict.types && !kind.is_empty() && !TYPES.contains(&kind) {
            errors.not_supported(&at.field("type"), kind, TYPES);
        }
        if let Some(reason) = context.no_defaults.filter(|_| schema.part("default").is_some()) {
            errors.forbidden(&at.field("default"), format!("must not be set {reason}"));
        }
        for field in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            let set = match schema.part(field) {
                None => false,
                Some(Value::String(text)) => !text.is_empty() || field == "$ref",
                Some(Value::Map(map)) => {
                    !map.is_empty() || matches!(field, "additionalItems" | "dependencies")
                }
                Some(_) => true,
            };
            if set {
                errors.forbidden(&at.field(field), format!("{field} is not supported"));
            }
        }
        if kind == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.forbidden(&at.field("type"), detail);
        }
        if matches!(schema.part("items"), Some(Value::List(items)) if !items.is_empty()) {
            errors.forbidden(&at.field("items"), "items must be a schema object and not an array");
        }
        if context.inside_metadata && schema.flag("x-kubernetes-embedded-resource") {
            let extension_at = at.field("x-kubernetes-embedded-resource");
            errors.forbidden(&extension_at, "must not be used inside of resource meta");
        }
    }

    fn properties(
        &mut self,
        schema: &Value,
        at: &At<'_>,
        context: SchemaContext<'_>,
        below: Option<Cardinality>,
    ) {
        let has_properties = schema.map_of("properties").is_some_and(|map| !map.is_empty());
        if let Some(additional) = schema.part("additionalProperties") {
            let additional_at = at.field("additionalProperties");
            if has_properties && *additional != Value::Bool(true) {
                self.schema_errors
                    .forbidden(&additional_at, "additionalProperties and properties are mutual exclusive");
            }
            if additional.as_map().is_some() {
                let mut inside = SchemaContext { is_root: false, ..context };
                if context.inside_metadata {
                    inside.no_defaults = Some("inside additionalProperties applying to object metadata");
                }
                self.schema(additional, &additional_at, inside, below);
            }
        }
        let list = at.field("properties");
        let correlates =
            matches!(schema.text_if_set("x-kubernetes-map-type"), None | Some("granular" | "atomic"));
        for (name, property) in schema.entries("properties") {
            let mut inside = SchemaContext { is_root: false, ..context };
            if !correlates {
                inside.uncorrelatable = inside.uncorrelatable.or(Some(at));
            }
            let is_meta = matches!(name, "metadata" | "kind" | "apiVersion");
            let reason = format!("in top-level {name}");
            if is_meta && (context.is_root || schema.flag("x-kubernetes-embedded-resource")) {
                inside.inside_metadata = true;
                if context.is_root {
                    inside.no_defaults = Some(&reason);
                }
            }
            self.schema(property, &list.key(name), inside, below);
        }
    }

    fn alternatives(&mut self, schema: &Value, at: &At<'_>, context: SchemaContext<'_>) {
        if let Some(not) = schema.part("not") {
            self.schema(not, &at.field("not"), context, None);
        }
        for field in ["allOf", "oneOf", "anyOf"] {
            let list = at.field(field);
            for (i, inner) in schema.items(field).iter().enumerate() {
                self.schema(inner, &list.index(i), context, None);
            }
        }
        let list = at.field("definitions");
        for (name, inner) in schema.entries("definitions") {
            self.schema(inner, &list.key(name), context, None);
        }
    }
}

/// Maximum number of values directly inside a value of the schema; `None` if unlimited.
fn most_elements(schema: &Value) -> Option<u64> {
    let bound = |field| schema.number_if_set(field).map(|most| u64::try_from(most).unwrap_or(0));
    match schema.text("type") {
        "object" if schema.part("additionalProperties").is_some() => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}

/// Go names of the fields allowed at the root of a schema if there is a `status` subresource.
const AT_ROOT: &[&str] = &[
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Rejects fields at the root that would be lost when `status` is validated separately for its subresource.
pub(super) fn root_with_status(schema: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    for field in quoted::fields_set(schema) {
        if field == "Type" {
            let kind = schema.text("type");
            if kind != "object" {
                let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.invalid(&at.field("type"), kind, detail);
                return;
            }
        } else if !AT_ROOT.contains(&field) {
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                AT_ROOT.join(" ")
            );
            errors.invalid_json(at, &quoted::schema(schema), &detail);
            return;
        }
    }
}

/// Reports an error about a default and quotes its value as written.
pub(super) fn bad_default(at: &At<'_>, default: &Value, detail: String, errors: &mut FieldErrors) {
    match default {
        Value::Map(_) | Value::List(_) => errors.invalid_json(at, &write::to_string(default), &detail),
        other => errors.report(FieldErrorKind::Invalid, at, Some(other.clone()), detail),
    }
}
