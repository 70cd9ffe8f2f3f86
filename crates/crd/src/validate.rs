//! Validates values against their schema with the error messages of Kubernetes' validation library.
//!
//! Validating a valid value allocates nothing. Each error is reported once, and errors in values that did not change
//! ([`CorrelatedPair`]) are ignored.

mod alternatives;
mod number;

use std::collections::HashSet;

use api::FieldErrors;
use api::field::{FieldError, FieldErrorKind};
use value::{Budget, BudgetEnded, Map, Meter, Str, Value, write};

use super::correlate::CorrelatedPair;
use super::formats;
use super::node::{Checks, SchemaNode};
use super::validation_result::{
    ProblemText, ValidationResult, ValidationSettings, ValuePath, ValueProblem, report, shown,
};
use alternatives::alternatives;
use number::{is_integral, number};

/// How many bytes of a string count as one step.
const TEXT_STEP: usize = 64;

/// The path of a value, the old value it corresponds to, and how it is validated.
#[derive(Clone, Copy)]
struct ValueContext<'v, 'p> {
    path: &'v ValuePath<'v>,
    pair: Option<&'v CorrelatedPair<'p>>,
    settings: ValidationSettings<'v>,
}

/// Validates a value and reports errors in fields below `base`. If the value replaces an old one, `old` is that one, and errors in
/// unchanged parts are ignored.
pub(super) fn schema_errors(
    value: &Value,
    old: Option<&Value>,
    node: &SchemaNode,
    base: &str,
    budget: &Budget,
    errors: &mut FieldErrors,
) {
    let meter = Meter::new(budget);
    let settings = ValidationSettings { meter: &meter, describes: true };
    let pair = old.map(|old| CorrelatedPair::new(value, old, node));
    let context = ValueContext { path: &ValuePath::Root, pair: pair.as_ref(), settings };
    let result = ratcheted(value, node, context);
    finish(result, &meter, base, errors);
}

/// Reports the errors found, or one error if the budget ended before validation did.
fn finish(result: ValidationResult<'_>, meter: &Meter<'_>, base: &str, errors: &mut FieldErrors) {
    let detail = match meter.finish() {
        Ok(()) => return report(result, base, errors),
        Err(BudgetEnded::Exhausted) => {
            "validation against the schema takes too many steps; use shorter lists and texts, or fewer alternatives and smaller patterns in the schema"
        }
        Err(BudgetEnded::Canceled) => "validation was canceled because the request ended",
    };
    let (kind, field) = (FieldErrorKind::Forbidden, base.to_owned());
    errors.push(FieldError { kind, field, bad_value: None, detail: detail.to_owned() });
}

/// Validates a default of a CRD.
pub fn defaults_are_valid(
    value: &Value,
    node: &SchemaNode,
    base: &str,
    budget: &Budget,
    errors: &mut FieldErrors,
) {
    schema_errors(value, None, node, base, budget, errors);
}

/// Like [`validate`], but accepts a value that did not change.
fn ratcheted<'a>(value: &Value, node: &'a SchemaNode, context: ValueContext<'_, '_>) -> ValidationResult<'a> {
    let mut result = validate(value, node, context);
    if !result.is_valid() && context.pair.is_some_and(CorrelatedPair::is_unchanged) {
        result.discard_problems();
    }
    result
}

fn validate<'a>(value: &Value, node: &'a SchemaNode, context: ValueContext<'_, '_>) -> ValidationResult<'a> {
    let ValueContext { path, settings, .. } = context;
    let mut result = ValidationResult::new(settings);
    if !settings.meter.step(1) {
        return result;
    }
    let checks = node.checks.as_deref();
    let format = checks.map_or("", |checks| checks.format.as_str());
    if value.is_null() {
        if has_type(node) && !node.nullable {
            result.wrong_type(path, type_names(node), "null");
        } else {
            result.matched += 1;
        }
        enumerated(value, checks, path, settings, &mut result);
        return result;
    }
    if has_type(node) || !format.is_empty() {
        check_type(value, node, format, path, &mut result);
        result.matched += 1;
    }
    if let Some(checks) = checks {
        alternatives(value, checks, context, &mut result);
    }
    // The library counts the check for alternatives as a match even if the schema has none.
    result.matched += if checks.is_some() { 1 } else { 2 };
    match value {
        Value::String(text) => {
            settings.meter.step(text.len() / TEXT_STEP);
            if let Some(checks) = checks {
                string(text, checks, path, settings, &mut result);
            }
            result.matched += 1;
            if formats::is_of_strings(format) {
                if !formats::is_valid(format, text) {
                    result.wrong_type(path, format, text);
                }
                result.matched += 1;
            }
        }
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
            number(value, node, path, &mut result);
            result.matched += 2;
        }
        Value::List(items) => {
            list(items, node, context, &mut result);
            result.matched += 2;
        }
        _ => {}
    }
    enumerated(value, checks, path, settings, &mut result);
    result.matched += 1;
    if let Value::Map(map) = value {
        object(map, node, context, &mut result);
        result.matched += 1;
    }
    result.matched += 1;
    result
}

fn has_type(node: &SchemaNode) -> bool {
    node.int_or_string || !node.kind.is_empty()
}

fn type_names(node: &SchemaNode) -> &str {
    if node.int_or_string { "integer,string" } else { node.kind.as_str() }
}

fn takes(node: &SchemaNode, kind: &str) -> bool {
    if node.int_or_string { matches!(kind, "integer" | "string") } else { node.kind == kind }
}

fn check_type(
    value: &Value,
    node: &SchemaNode,
    format: &str,
    path: &ValuePath<'_>,
    result: &mut ValidationResult<'_>,
) {
    let (kind, own_format) = match value {
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Int(_) | Value::UInt(_) => ("integer", "int64"),
        Value::Float(_) => ("number", "float64"),
        Value::List(_) => ("array", ""),
        Value::Map(_) | Value::Null => ("object", ""),
    };
    let float_as_integer = matches!(value, Value::Float(f) if is_integral(*f)) && takes(node, "integer");
    let fits = takes(node, kind) || float_as_integer || (kind == "integer" && takes(node, "number"));
    let texty = matches!(kind, "string" | "array");
    if !texty && !format.is_empty() && !fits && own_format != format {
        return result.wrong_type(path, format, own_format);
    }
    let numeric = takes(node, "number") || takes(node, "integer");
    if !numeric && !format.is_empty() && texty {
        result.matched += 1;
        return;
    }
    if fits {
        result.matched += 1;
    } else {
        result.wrong_type(path, type_names(node), kind);
    }
}

/// Reports the first failed check of a string.
fn string<'a>(
    text: &Str,
    checks: &'a Checks,
    path: &ValuePath<'_>,
    settings: ValidationSettings<'_>,
    result: &mut ValidationResult<'a>,
) {
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = checks.max_length.filter(|max| length() > *max) {
        result.push(|| {
            let detail = match usize::try_from(max) {
                Ok(max) => FieldError::too_long(&value::Path::root(), max).detail,
                Err(_) => "value is too long".to_owned(),
            };
            let message = format!("{path} in body should be at most {max} chars long");
            ValueProblem {
                field: Some(path.to_string()),
                kind: FieldErrorKind::TooLong,
                value: None,
                text: ProblemText::Both { detail, message },
            }
        });
        return;
    }
    if let Some(min) = checks.min_length.filter(|min| length() < *min) {
        return result.invalid(path, text.clone(), format_args!("should be at least {min} chars long"));
    }
    if let Some(pattern) = &checks.pattern {
        match pattern.get() {
            Ok(compiled) => {
                let take = |units| settings.meter.step(usize::try_from(units).unwrap_or(usize::MAX));
                // `None` means that the budget ended; [`finish`] reports that.
                if compiled.is_match_within(text, take) == Some(false) {
                    result.push(|| ValueProblem {
                        field: Some(path.to_string()),
                        kind: FieldErrorKind::Invalid,
                        value: Some(text.clone().into()),
                        text: ProblemText::Match(&pattern.text),
                    });
                }
            }
            Err(error) => {
                let pattern = &pattern.text;
                let requirement = format_args!("should match '{pattern}, but pattern is invalid: {error}'");
                result.invalid(path, text.clone(), requirement);
            }
        }
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn too_many(path: &ValuePath<'_>, actual: usize, max: i64, things: &str, result: &mut ValidationResult<'_>) {
    result.push(|| {
        let error = FieldError::too_many(&value::Path::root(), actual, usize::try_from(max).unwrap_or(0));
        let message = format!("{path} in body should have at most {max} {things}");
        ValueProblem {
            field: Some(path.to_string()),
            kind: FieldErrorKind::TooMany,
            value: error.bad_value,
            text: ProblemText::Both { detail: error.detail, message },
        }
    });
}

fn list<'a>(
    items: &[Value],
    node: &'a SchemaNode,
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let ValueContext { path, pair, settings } = context;
    if let Some(below) = node.items.as_deref() {
        for (index, item) in items.iter().enumerate() {
            let pair = pair.and_then(|pair| pair.index(index));
            let settings = settings.inside(result);
            let path = &ValuePath::Index(path, index);
            result.merge(ratcheted(item, below, ValueContext { path, pair: pair.as_ref(), settings }));
        }
    }
    let Some(checks) = node.checks.as_deref() else { return };
    let size = count(items.len());
    if let Some(min) = checks.min_items.filter(|min| size < *min) {
        result.invalid(path, size, format_args!("should have at least {min} items"));
    }
    if let Some(max) = checks.max_items.filter(|max| size > *max) {
        too_many(path, items.len(), max, "items", result);
    }
    if checks.unique_items {
        let mut seen = HashSet::with_capacity(items.len());
        let is_new = |item: &Value| {
            let written = write::to_vec(item);
            settings.meter.step(1 + written.len() / TEXT_STEP);
            seen.insert(written)
        };
        if !items.iter().all(is_new) {
            result.invalid(path, "", format_args!("shouldn't contain duplicates"));
        }
    }
}

fn object<'a>(
    map: &Map,
    node: &'a SchemaNode,
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let path = context.path;
    context.settings.meter.step(map.len() + node.required.len());
    if let Some(checks) = node.checks.as_deref() {
        let size = count(map.len());
        if let Some(min) = checks.min_properties.filter(|min| size < *min) {
            result.invalid(path, size, format_args!("should have at least {min} properties"));
        }
        if let Some(max) = checks.max_properties.filter(|max| size > *max) {
            too_many(path, map.len(), max, "properties", result);
        }
    }
    additional_properties(map, node, context, result);
    properties(map, node, context, result);
    for name in node.required.iter().filter(|name| !map.contains_key(name)) {
        result.push(|| ValueProblem {
            field: Some(ValuePath::Field(path, name).to_string()),
            kind: FieldErrorKind::Required,
            value: None,
            text: ProblemText::Both {
                detail: String::new(),
                message: format!("{path}.{name} in body is required"),
            },
        });
    }
}

/// Validates the values of the keys that are not declared as properties.
fn additional_properties<'a>(
    map: &Map,
    node: &'a SchemaNode,
    ValueContext { path, pair, settings }: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let Some(additional) = &node.additional else { return };
    if !additional.allows {
        for key in map.keys().filter(|key| node.property(key).is_none()) {
            let message = format_args!("{path}.{} in body is a forbidden property", shown(key));
            result.add_problem(path, FieldErrorKind::Invalid, key.clone(), message);
        }
        return;
    }
    let Some(values) = additional.node.as_deref() else { return };
    for (key, value) in map.iter().filter(|(key, _)| node.property(key).is_none()) {
        let pair = pair.and_then(|pair| pair.key(key));
        let settings = settings.inside(result);
        let path = &ValuePath::Entry(path, key);
        result.merge(ratcheted(value, values, ValueContext { path, pair: pair.as_ref(), settings }));
    }
}

/// Validates the values of declared properties. Both lists are sorted, so one pass over the two of them finds every property.
fn properties<'a>(
    map: &Map,
    node: &'a SchemaNode,
    ValueContext { path, pair, settings }: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let is_root = matches!(path, ValuePath::Root);
    let mut known = node.properties.iter().peekable();
    for (key, value) in map.iter() {
        while known.next_if(|(name, _)| name < key).is_some() {}
        let Some((_, property)) = known.next_if(|(name, _)| name == key) else { continue };
        let fixed = is_root && matches!(key.as_str(), "kind" | "apiVersion");
        let pair = pair.filter(|_| !fixed).and_then(|pair| pair.key(key));
        let settings = settings.inside(result);
        let path = &ValuePath::Field(path, key);
        result.merge(ratcheted(value, property, ValueContext { path, pair: pair.as_ref(), settings }));
    }
}

fn enumerated<'a>(
    value: &Value,
    checks: Option<&'a Checks>,
    path: &ValuePath<'_>,
    settings: ValidationSettings<'_>,
    result: &mut ValidationResult<'a>,
) {
    let Some(checks) = checks.filter(|checks| !checks.enumeration.is_empty()) else { return };
    let steps = checks.enumeration.steps(value);
    if !settings.meter.step(steps) || checks.enumeration.has(value, is_same) {
        return;
    }
    result.push(|| ValueProblem {
        field: Some(path.to_string()),
        kind: FieldErrorKind::NotSupported,
        value: Some(value.clone()),
        text: ProblemText::OneOf(checks.enumeration.values()),
    });
}

/// Whether two values are equal, after converting a number to the type of the allowed one.
#[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "Go converts and compares so")]
fn is_same(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Int(value), Value::Float(allowed)) => *value as f64 == *allowed,
        (Value::Float(value), Value::Int(allowed)) => value.trunc() == *allowed as f64,
        // In Go, null has no type and equals nothing here.
        (Value::Null, _) | (_, Value::Null) => false,
        _ => value == allowed,
    }
}
