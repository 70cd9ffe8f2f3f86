//! Validates each schema of a CRD: types, extensions, and CEL rules with their estimated costs.

use std::collections::HashSet;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::validation::fields::{At, Read, Report};
use api::validation::repeated::Repeated;
use value::{Value, write};

use super::quoted;
use super::strictness::Strictness;
use crate::rules::{self, RuleSource};
use crate::{SchemaNode, ValidationRule, field_path};

/// CEL cost limit of one expression.
const MOST_PER_RULE: u64 = 10_000_000;
/// CEL cost limit of all expressions of a schema together.
const MOST_PER_SCHEMA: u64 = 100_000_000;

const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Properties that a schema inherits from its parents.
#[derive(Clone, Copy)]
struct SchemaContext<'a> {
    /// Why defaults are not allowed; `None` if they are.
    no_defaults: Option<&'a str>,
    inside_metadata: bool,
    /// Path of the outermost list or map below which old and new values cannot be correlated.
    uncorrelatable: Option<&'a At<'a>>,
}

/// How often a value of the schema can occur; `None` if the schema does not limit it.
#[derive(Clone, Copy)]
struct Cardinality {
    cardinality: Option<u64>,
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
    let mut walk = SchemaValidator {
        strict,
        suppress_costs,
        schema_errors: FieldErrors::new(),
        rule_errors: FieldErrors::new(),
        total: 0,
        costliest: Vec::new(),
    };
    let context = SchemaContext { no_defaults: None, inside_metadata: false, uncorrelatable: None };
    let scope = with_rules.then_some(Cardinality { cardinality: Some(1) });
    walk.schema(schema, at, context, true, scope);
    errors.append(&mut walk.schema_errors);
    errors.append(&mut walk.rule_errors);
    if walk.total > MOST_PER_SCHEMA {
        for (path, _) in &walk.costliest {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(&At::new(path), detail);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(at, too_costly(what, walk.total, MOST_PER_SCHEMA));
    }
}

impl SchemaValidator<'_> {
    fn schema(
        &mut self,
        schema: &Value,
        at: &At<'_>,
        context: SchemaContext<'_>,
        root: bool,
        scope: Option<Cardinality>,
    ) {
        let errors_before = self.schema_errors.len();
        self.standard(schema, at, context);
        if schema.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.schema_errors.forbidden(&at.field("uniqueItems"), detail);
        }
        let below = scope.map(|scope| Cardinality {
            cardinality: scope.cardinality.zip(most_elements(schema)).map(|(a, b)| a.saturating_mul(b)),
        });
        self.properties(schema, at, context, root, below);
        self.alternatives(schema, at, context);
        if let Some(items) = schema.part("items") {
            let keyed = schema.text_if_set("x-kubernetes-list-type") == Some("map");
            let inside = SchemaContext {
                uncorrelatable: if keyed {
                    context.uncorrelatable
                } else {
                    context.uncorrelatable.or(Some(at))
                },
                ..context
            };
            let items_at = at.field("items");
            match items {
                Value::List(items) => {
                    for (i, item) in items.iter().enumerate() {
                        self.schema(item, &items_at.index(i), inside, false, below);
                    }
                }
                item => self.schema(item, &items_at, inside, false, below),
            }
        }
        for (name, dependency) in schema.entries("dependencies").filter(|(_, d)| d.as_map().is_some()) {
            let dependencies_at = at.field("dependencies");
            self.schema(dependency, &dependencies_at.key(name), context, false, None);
        }
        self.extensions(schema, at);
        self.rules(schema, at, context, root, scope, errors_before);
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
        root: bool,
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
                let inside = if context.inside_metadata {
                    let reason = "inside additionalProperties applying to object metadata";
                    SchemaContext { no_defaults: Some(reason), ..context }
                } else {
                    context
                };
                self.schema(additional, &additional_at, inside, false, below);
            }
        }
        let list = at.field("properties");
        let correlates =
            matches!(schema.text_if_set("x-kubernetes-map-type"), None | Some("granular" | "atomic"));
        for (name, property) in schema.entries("properties") {
            let mut inside = context;
            if !correlates {
                inside.uncorrelatable = inside.uncorrelatable.or(Some(at));
            }
            let is_meta = matches!(name, "metadata" | "kind" | "apiVersion");
            let reason = format!("in top-level {name}");
            if is_meta && (root || schema.flag("x-kubernetes-embedded-resource")) {
                inside.inside_metadata = true;
                if root {
                    inside.no_defaults = Some(&reason);
                }
            }
            self.schema(property, &list.key(name), inside, false, below);
        }
    }

    fn alternatives(&mut self, schema: &Value, at: &At<'_>, context: SchemaContext<'_>) {
        if let Some(not) = schema.part("not") {
            self.schema(not, &at.field("not"), context, false, None);
        }
        for field in ["allOf", "oneOf", "anyOf"] {
            let list = at.field(field);
            for (i, inner) in schema.items(field).iter().enumerate() {
                self.schema(inner, &list.index(i), context, false, None);
            }
        }
        let list = at.field("definitions");
        for (name, crd) in schema.entries("definitions") {
            self.schema(crd, &list.key(name), context, false, None);
        }
    }

    /// Validates the `x-kubernetes-*` extensions.
    fn extensions(&mut self, schema: &Value, at: &At<'_>) {
        const LIST: &str = "x-kubernetes-list-type";
        const MAP: &str = "x-kubernetes-map-type";
        const KEYS: &str = "x-kubernetes-list-map-keys";
        let errors = &mut self.schema_errors;
        let kind = schema.text("type");
        let preserve = "x-kubernetes-preserve-unknown-fields";
        if schema.flag_if_set(preserve) == Some(false) {
            errors.invalid(&at.field(preserve), false, "must be true or undefined");
        }
        let mut needs_type = |extension: &str, wanted: &str| {
            let detail = format!("must be {wanted} if {extension} is specified");
            if kind.is_empty() {
                errors.required(&at.field("type"), detail);
            } else {
                errors.invalid(&at.field("type"), kind, detail);
            }
        };
        let (list_type, map_type) = (schema.text_if_set(LIST), schema.text_if_set(MAP));
        if map_type.is_some() && kind != "object" {
            needs_type(MAP, "object");
        }
        if list_type.is_some() && kind != "array" {
            needs_type(LIST, "array");
        }
        if let Some(map_type) = map_type.filter(|found| !matches!(*found, "atomic" | "granular")) {
            errors.not_supported(&at.field(MAP), map_type, &["atomic", "granular"]);
        }
        let items_at = at.field("items");
        let items = schema.part("items").filter(|items| items.as_map().is_some());
        if let Some(items) =
            items.filter(|_| list_type == Some("set") && kind == "array" && self.strict.atomic_sets)
        {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let found = || items.text_if_set(LIST).map_or(Value::Null, Value::from);
            match items.text("type") {
                "array" if !matches!(items.text_if_set(LIST), None | Some("atomic")) => {
                    errors.invalid(&items_at.field(LIST), found(), detail);
                }
                "object" if items.text_if_set(MAP) != Some("atomic") => {
                    errors.invalid(&items_at.field(MAP), found(), detail);
                }
                _ => {}
            }
        }
        if let Some(list_type) = list_type.filter(|found| !matches!(*found, "atomic" | "set" | "map")) {
            errors.not_supported(&at.field(LIST), list_type, &["atomic", "set", "map"]);
        }
        let keys: Vec<&str> = schema.texts(KEYS).collect();
        if !keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            match list_type {
                None => errors.required(&at.field(LIST), detail),
                Some("map") => {}
                Some(other) => errors.invalid(&at.field(LIST), other, detail),
            }
        }
        if list_type == Some("map") {
            let keys_at = at.field(KEYS);
            if keys.is_empty() {
                errors.required(&keys_at, "must not be empty if x-kubernetes-list-type is map");
            }
            match schema.get("items") {
                None => errors.required(&items_at, "must have a schema if x-kubernetes-list-type is map"),
                Some(found @ (Value::List(_) | Value::Null)) => {
                    let detail = "must only have a single schema if x-kubernetes-list-type is map";
                    errors.invalid_json(&items_at, &quoted::items(found), detail);
                }
                Some(found) if found.text("type") != "object" => {
                    let detail = "must be object if parent array's x-kubernetes-list-type is map";
                    errors.invalid(&items_at.field("type"), found.text("type"), detail);
                }
                Some(found) => {
                    let repeated = Repeated::earlier(&keys);
                    // Each error shows all keys, so reporting every error could exhaust memory.
                    let mut left = MAX_KEY_ERRORS;
                    for (i, key) in keys.iter().enumerate() {
                        if left == 0 {
                            break;
                        }
                        let before = errors.len();
                        let shown = || Value::list(keys.iter().copied());
                        match found.part("properties").part(key) {
                            Some(property) if matches!(property.text("type"), "array" | "object") => {
                                let properties = items_at.field("properties");
                                let key_at = properties.key(key);
                                let detail =
                                    "must be a scalar type if parent array's x-kubernetes-list-type is map";
                                errors.invalid(&key_at.field("type"), found.text("type"), detail);
                            }
                            Some(_) => {}
                            None => {
                                errors.invalid(
                                    &keys_at,
                                    shown(),
                                    "entries must all be names of item properties",
                                );
                            }
                        }
                        if repeated.at(i) {
                            errors.invalid(&keys_at, shown(), "must not contain duplicate entries");
                        }
                        left -= usize::from(errors.len() > before);
                    }
                }
            }
        }
        if self.strict.list_keys {
            list_keys(schema, at, errors);
        }
    }

    fn rules(
        &mut self,
        schema: &Value,
        at: &At<'_>,
        context: SchemaContext<'_>,
        root: bool,
        scope: Option<Cardinality>,
        errors_before: usize,
    ) {
        let written = schema.items("x-kubernetes-validations");
        if written.is_empty() {
            return;
        }
        let node = SchemaNode::read(schema);
        // Field paths are not checked in an unreadable schema.
        let readable = super::structural::unreadable(schema).is_none().then_some(&node);
        let list = at.field("x-kubernetes-validations");
        for (i, (rule, read)) in written.iter().zip(&node.rules).enumerate() {
            self.written(rule, read, readable, &list.index(i));
        }
        let Some(scope) = scope.filter(|_| self.schema_errors.len() == errors_before) else { return };
        let is_resource = root || schema.flag("x-kubernetes-embedded-resource");
        let watch = self.strict.stopwatch.as_deref();
        let source = RuleSource { node: &node, schema, is_resource };
        let Some(compiled) = rules::compile(source, true, watch) else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.rule_errors.internal(&list, detail);
            return;
        };
        for (i, (rule, compilation)) in written.iter().zip(&compiled.rules).enumerate() {
            let rule_at = list.index(i);
            let times = scope.cardinality.unwrap_or(compiled.max_cardinality);
            self.compiled(rule, compilation, times, context, &rule_at);
        }
    }

    /// Validates the fields of a rule without compiling it.
    fn written(&mut self, rule: &Value, read: &ValidationRule, node: Option<&SchemaNode>, at: &At<'_>) {
        let errors = &mut self.schema_errors;
        let breaks = |text: &str| text.contains(['\n', '\r']);
        let message = read.message.trim();
        if read.rule.trim().is_empty() {
            errors.required(&at.field("rule"), "rule is not specified");
        } else if !read.message.is_empty() && message.is_empty() {
            errors.invalid(&at.field("message"), read.message.clone(), "must be non-empty if specified");
        } else if breaks(message) {
            errors.invalid(&at.field("message"), read.message.clone(), "must not contain line breaks");
        } else if breaks(read.rule.trim()) && message.is_empty() {
            errors.required(&at.field("message"), "message must be specified if rule contains line breaks");
        }
        if !read.message_expression.is_empty() && read.message_expression.trim().is_empty() {
            let message_at = at.field("messageExpression");
            errors.required(&message_at, "messageExpression must be non-empty if specified");
        }
        if let Some(reason) = rule.text_if_set("reason").filter(|reason| !REASONS.contains(reason)) {
            errors.not_supported(&at.field("reason"), reason, REASONS);
        }
        let path = read.field_path.as_str();
        let path_at = at.field("fieldPath");
        if !path.is_empty() && path.trim().is_empty() {
            errors.invalid(&path_at, path, "must be non-empty if specified");
        }
        if breaks(path) {
            errors.invalid(&path_at, path, "must not contain line breaks");
        }
        let is_bad = |node| !path.is_empty() && field_path(path, node, true).is_err();
        if node.is_some_and(is_bad) {
            errors.invalid(&path_at, path, "must be a valid path");
        }
    }

    fn compiled(
        &mut self,
        rule: &Value,
        compiled: &rules::CompiledRule,
        times: u64,
        context: SchemaContext<'_>,
        at: &At<'_>,
    ) {
        let written = &compiled.rule;
        if written.rule.trim().is_empty() {
            return;
        }
        let cost = compiled.max_cost.saturating_mul(times);
        let rule_at = at.field("rule");
        if !self.suppress_costs && cost > MOST_PER_RULE {
            let detail = too_costly("estimated rule cost", cost, MOST_PER_RULE);
            self.rule_errors.forbidden(&rule_at, detail);
        }
        self.observe(&rule_at, cost);
        if let Err(error) = &compiled.program {
            self.rule_errors.invalid_json(&rule_at, &quoted::rule(rule), error);
        }
        let message_at = at.field("messageExpression");
        match &compiled.message {
            None => {}
            Some(Err(error)) => self.rule_errors.invalid_json(&message_at, &quoted::rule(rule), error),
            Some(Ok(_)) => {
                if !self.suppress_costs && compiled.message_max_cost > MOST_PER_RULE {
                    let what = "estimated messageExpression cost";
                    let detail = too_costly(what, compiled.message_max_cost, MOST_PER_RULE);
                    self.rule_errors.forbidden(&message_at, detail);
                }
                self.observe(&message_at, compiled.message_max_cost);
            }
        }
        if compiled.uses_old_self {
            if let Some(outermost) = context.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {outermost}"
                );
                self.rule_errors.invalid(&rule_at, written.rule.clone(), detail);
            }
        } else if let Some(optional) = written.optional_old_self {
            let optional_at = at.field("optionalOldSelf");
            self.rule_errors.invalid(&optional_at, optional, "may not be set if oldSelf is not used in rule");
        }
    }

    fn observe(&mut self, at: &At<'_>, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= MOST_PER_SCHEMA / 100 {
            self.costliest.push((at.to_string(), cost));
            self.costliest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.costliest.truncate(4);
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

#[expect(clippy::cast_precision_loss, reason = "a factor for people to read")]
fn too_costly(what: &str, cost: u64, most: u64) -> String {
    let factor = cost as f64 / most as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Limit on the keys reported per list.
const MAX_KEY_ERRORS: usize = 64;

/// Checks that items of sets and keyed lists are not nullable and that list map keys are required or have defaults.
pub(super) fn list_keys(schema: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(items) = schema.part("items").filter(|items| items.as_map().is_some()) else { return };
    let Some(list_type @ ("set" | "map")) = schema.text_if_set("x-kubernetes-list-type") else { return };
    let items_at = at.field("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&items_at.field("nullable"), detail);
    }
    if list_type == "set" {
        return;
    }
    let properties = items_at.field("properties");
    let required: HashSet<&str> = items.texts("required").collect();
    for key in schema.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.part("properties").part(key) else { continue };
        let key_at = properties.key(key);
        if !required.contains(key) && property.part("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&key_at.field("default"), detail);
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&key_at.field("nullable"), detail);
        }
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
