//! Validates the defaults of a schema against that schema.

use api::FieldErrors;
use api::field::aggregate;
use api::validation::fields::{At, Read};
use value::{Map, Value};

use super::schema::bad_default;
use super::strictness::Strictness;
use crate::rules::{self, RuleSource};
use crate::{SchemaNode, ValidationBounds, embedded_errors, size, without_unknown};

/// How many bytes of a schema count as one step.
const BYTES_OF_STEP: usize = 16;

/// Validates the defaults in the schema of a whole resource.
pub(super) fn check(schema: &Value, at: &At<'_>, strict: &Strictness) -> FieldErrors {
    let mut validator = DefaultsValidator { errors: FieldErrors::new(), budget: rules::BUDGET, strict };
    let location = SchemaLocation { at, is_resource: true, around: &[], inside_metadata: false };
    validator.schema(schema, location);
    validator.errors
}

/// Position of a schema in the schema of the resource that contains it.
#[derive(Clone, Copy)]
struct SchemaLocation<'a> {
    at: &'a At<'a>,
    /// Whether the schema describes a whole resource.
    is_resource: bool,
    /// The path from the enclosing resource to the schema: field names, and `None` for list items.
    around: &'a [Option<&'a str>],
    inside_metadata: bool,
}

struct DefaultsValidator<'s> {
    errors: FieldErrors,
    budget: i64,
    strict: &'s Strictness,
}

impl DefaultsValidator<'_> {
    fn schema(&mut self, schema: &Value, location: SchemaLocation<'_>) {
        let location = if location.is_resource || schema.flag("x-kubernetes-embedded-resource") {
            SchemaLocation { is_resource: true, around: &[], inside_metadata: false, ..location }
        } else {
            location
        };
        let SchemaLocation { at, is_resource, around, inside_metadata } = location;
        if let Some(default) = schema.part("default") {
            self.default(schema, default, location);
        }
        if self.is_ended() {
            return;
        }
        if let Some(items) = schema.part("items") {
            let around: Vec<Option<&str>> = around.iter().copied().chain([None]).collect();
            let at = &at.field("items");
            self.schema(items, SchemaLocation { at, is_resource: false, around: &around, inside_metadata });
        }
        let properties = at.field("properties");
        for (name, property) in schema.entries("properties") {
            if self.is_ended() {
                return;
            }
            let meta = is_resource && matches!(name, "metadata" | "apiVersion" | "kind");
            let around: Vec<Option<&str>> = around.iter().copied().chain([Some(name)]).collect();
            let (at, inside_metadata) = (&properties.key(name), inside_metadata || meta);
            self.schema(
                property,
                SchemaLocation { at, is_resource: false, around: &around, inside_metadata },
            );
        }
    }

    fn is_ended(&self) -> bool {
        self.budget < 0 || self.strict.budget.check().is_err()
    }

    fn default(&mut self, schema: &Value, default: &Value, location: SchemaLocation<'_>) {
        let SchemaLocation { at, is_resource, around, inside_metadata } = location;
        let default_at = at.field("default");
        // Nested defaults read the innermost schema once per default. If this ends the budget, the check below reports it.
        let _ = self.strict.budget.spend((size(schema) / BYTES_OF_STEP) as u64);
        let mut node = SchemaNode::read(schema);
        node.embedded |= is_resource;
        if inside_metadata {
            let object = wrap(default.clone(), around);
            if let Some(wrong) = embedded_errors(&object) {
                let detail = format!("must result in valid metadata: {wrong}");
                return bad_default(&default_at, default, detail, &mut self.errors);
            }
        } else {
            if self.strict.pruned_defaults && without_unknown(default, &node) != *default {
                bad_default(
                    &default_at,
                    default,
                    "must not have unknown fields".to_owned(),
                    &mut self.errors,
                );
            }
            let found = crate::metadata_errors(default, &node, &default_at);
            if !found.is_empty() {
                self.errors.extend(found);
                return;
            }
        }
        let mut found = FieldErrors::new();
        let defaults_node = SchemaNode::for_defaults(schema);
        let budget = &self.strict.budget;
        crate::defaults_are_valid(default, &defaults_node, &default_at.to_string(), budget, &mut found);
        if found.is_empty() {
            let bounds = ValidationBounds { watch: self.strict.stopwatch.as_deref(), budget };
            let source = RuleSource { node: &node, schema, is_resource };
            let (errors, left) = rules::check_default(source, default, &default_at, self.budget, bounds);
            found = errors;
            self.budget = left;
        }
        self.errors.append(&mut found);
    }
}

/// Builds a minimal resource that has `value` at the path `around`.
fn wrap(value: Value, around: &[Option<&str>]) -> Value {
    let mut object = around.iter().rev().fold(value, |inner, step| match step {
        None => Value::List(vec![inner]),
        Some(name) => Value::map([(*name, inner)]),
    });
    if !matches!(object, Value::Map(_)) {
        object = Value::Map(Map::new());
    }
    for (field, text) in [("kind", "Validation"), ("apiVersion", "validation/v1")] {
        if object.get(field).is_none() {
            object.set_at(&[field], text);
        }
    }
    object
}

pub(super) fn joined(errors: &FieldErrors) -> String {
    aggregate(errors)
}
