//! Validates values against their schema with the error messages of Kubernetes' validation library.
//!
//! Validating a valid value allocates nothing. Each error is reported once, and errors in values that did not change ([`CorrelatedPair`]) are
//! ignored.

use std::collections::HashSet;
use std::fmt;

use api::FieldErrors;
use api::field::{FieldError, FieldErrorKind, float as go_text, quote};
use value::{Budget, BudgetEnded, Meter, Str, Value, write};

use super::correlate::CorrelatedPair;
use super::formats;
use super::node::{Checks, SchemaNode};
use super::validation_result::{
    Problem, ProblemText, ValidationResult, ValidationSettings, ValuePath, report, shown,
};

/// How many bytes of a string count as one step.
const TEXT_STEP: usize = 64;

/// Validates a new value and reports errors in fields below `base`.
pub(super) fn create(
    value: &Value,
    node: &SchemaNode,
    base: &str,
    budget: &Budget,
    errors: &mut FieldErrors,
) {
    let meter = Meter::new(budget);
    let walk = ValidationSettings { meter: &meter, describes: true };
    let verdict = validate(value, node, &ValuePath::Root, None, walk);
    finish(verdict, &meter, base, errors);
}

/// Validates a changed value and ignores errors in its unchanged parts.
pub(super) fn update(
    pair: &CorrelatedPair<'_>,
    node: &SchemaNode,
    base: &str,
    budget: &Budget,
    errors: &mut FieldErrors,
) {
    let meter = Meter::new(budget);
    let walk = ValidationSettings { meter: &meter, describes: true };
    let verdict = ratcheted(pair.new, node, &ValuePath::Root, Some(pair), walk);
    finish(verdict, &meter, base, errors);
}

/// Reports the errors found, or one error if the budget ended before validation did.
fn finish(verdict: ValidationResult<'_>, meter: &Meter<'_>, base: &str, errors: &mut FieldErrors) {
    let detail = match meter.finish() {
        Ok(()) => return report(verdict, base, errors),
        Err(BudgetEnded::Exhausted) => {
            "validation against the schema takes too many steps; use shorter lists and texts, or fewer alternatives and smaller patterns in the schema"
        }
        Err(BudgetEnded::Cancelled) => "validation was cancelled because the request ended",
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
    create(value, node, base, budget, errors);
}

/// Like [`validate`], but accepts a value that did not change.
fn ratcheted<'a>(
    value: &Value,
    node: &'a SchemaNode,
    path: &ValuePath<'_>,
    pair: Option<&CorrelatedPair<'_>>,
    walk: ValidationSettings<'_>,
) -> ValidationResult<'a> {
    let mut verdict = validate(value, node, path, pair, walk);
    if !verdict.is_valid() && pair.is_some_and(CorrelatedPair::is_unchanged) {
        verdict.forgive();
    }
    verdict
}

fn validate<'a>(
    value: &Value,
    node: &'a SchemaNode,
    path: &ValuePath<'_>,
    pair: Option<&CorrelatedPair<'_>>,
    walk: ValidationSettings<'_>,
) -> ValidationResult<'a> {
    let mut verdict = ValidationResult::new(walk);
    if !walk.meter.step(1) {
        return verdict;
    }
    let checks = node.checks.as_deref();
    let format = checks.map_or("", |checks| checks.format.as_str());
    if value.is_null() {
        if has_type(node) && !node.nullable {
            verdict.wrong_type(path, type_names(node), "null");
        } else {
            verdict.matched += 1;
        }
        enumerated(value, checks, path, walk, &mut verdict);
        return verdict;
    }
    if has_type(node) || !format.is_empty() {
        check_type(value, node, format, path, &mut verdict);
        verdict.matched += 1;
    }
    if let Some(checks) = checks {
        alternatives(value, checks, path, pair, walk, &mut verdict);
    }
    // The library counts the check for alternatives as a match even if the schema has none.
    verdict.matched += if checks.is_some() { 1 } else { 2 };
    match value {
        Value::String(text) => {
            walk.meter.step(text.len() / TEXT_STEP);
            if let Some(checks) = checks {
                string(text, checks, path, walk, &mut verdict);
            }
            verdict.matched += 1;
            if formats::is_of_strings(format) {
                if !formats::is_valid(format, text) {
                    verdict.wrong_type(path, format, text);
                }
                verdict.matched += 1;
            }
        }
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
            number(value, node, checks, path, &mut verdict);
            verdict.matched += 2;
        }
        Value::List(items) => {
            list(items, node, checks, path, pair, walk, &mut verdict);
            verdict.matched += 2;
        }
        _ => {}
    }
    enumerated(value, checks, path, walk, &mut verdict);
    verdict.matched += 1;
    if let Value::Map(_) = value {
        object(value, node, checks, path, pair, walk, &mut verdict);
        verdict.matched += 1;
    }
    verdict.matched += 1;
    verdict
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

/// Whether a number has no fraction and lies within the integers that floats represent exactly.
fn is_integral(number: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    number.fract() == 0.0 && number.abs() <= LARGEST
}

fn check_type(
    value: &Value,
    node: &SchemaNode,
    format: &str,
    path: &ValuePath<'_>,
    verdict: &mut ValidationResult<'_>,
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
        return verdict.wrong_type(path, format, own_format);
    }
    let numeric = takes(node, "number") || takes(node, "integer");
    if !numeric && !format.is_empty() && texty {
        verdict.matched += 1;
        return;
    }
    if fits {
        verdict.matched += 1;
    } else {
        verdict.wrong_type(path, type_names(node), kind);
    }
}

fn alternatives<'a>(
    value: &Value,
    checks: &'a Checks,
    path: &ValuePath<'_>,
    pair: Option<&CorrelatedPair<'_>>,
    walk: ValidationSettings<'_>,
    verdict: &mut ValidationResult<'a>,
) {
    let quoted = Quoted(path);
    // Only the best of the failing alternatives is validated again with error messages, so that the others cost no text.
    let describe = |best: Option<(u64, &'a SchemaNode)>, verdict: &mut ValidationResult<'a>| match best {
        Some((_, node)) if walk.describes => verdict.merge(validate(value, node, path, pair, walk)),
        Some((matched, _)) => verdict.matched += matched,
        None => {}
    };
    if !checks.any_of.is_empty() {
        let mut best: Option<(u64, &'a SchemaNode)> = None;
        let mut passed = None;
        for node in &checks.any_of {
            let result = validate(value, node, path, pair, walk.silently());
            if result.is_valid() {
                passed = Some(result);
                break;
            }
            if best.is_none_or(|(matched, _)| result.matched > matched) {
                best = Some((result.matched, node));
            }
        }
        match passed {
            Some(passed) => verdict.merge(passed),
            None => {
                verdict.whole(format_args!("{quoted} must validate at least one schema (anyOf)"));
                describe(best, verdict);
            }
        }
    }
    if !checks.one_of.is_empty() {
        let mut best: Option<(u64, &'a SchemaNode)> = None;
        let mut first = None;
        let mut passed = 0;
        for node in &checks.one_of {
            let result = validate(value, node, path, pair, walk.silently());
            if result.is_valid() {
                passed += 1;
                best = None;
                first = first.or(Some(result));
            } else if passed == 0 && best.is_none_or(|(matched, _)| result.matched > matched) {
                best = Some((result.matched, node));
            }
        }
        match passed {
            1 => verdict.merge(first.unwrap_or_default()),
            0 => verdict.whole(format_args!(
                "{quoted} must validate one and only one schema (oneOf). Found none valid"
            )),
            passed => verdict.whole(format_args!(
                "{quoted} must validate one and only one schema (oneOf). Found {passed} valid alternatives"
            )),
        }
        describe(best, verdict);
    }
    if !checks.all_of.is_empty() {
        let mut passed = 0;
        for node in &checks.all_of {
            let result = validate(value, node, path, pair, walk.inside(verdict));
            passed += usize::from(result.is_valid());
            verdict.merge(result);
        }
        if passed != checks.all_of.len() {
            let none = if passed == 0 { ". None validated" } else { "" };
            verdict.whole(format_args!("{quoted} must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &checks.not
        && validate(value, not, path, pair, walk.silently()).is_valid()
    {
        verdict.whole(format_args!("{quoted} must not validate the schema (not)"));
    }
    verdict.matched += 1;
}

/// A quoted path, formatted only when it is printed.
struct Quoted<'a>(&'a ValuePath<'a>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.0.to_string()))
    }
}

/// Reports the first failed check of a string.
fn string<'a>(
    text: &Str,
    checks: &'a Checks,
    path: &ValuePath<'_>,
    walk: ValidationSettings<'_>,
    verdict: &mut ValidationResult<'a>,
) {
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = checks.max_length.filter(|max| length() > *max) {
        verdict.push(|| {
            let detail = match usize::try_from(max) {
                Ok(max) => FieldError::too_long(&value::Path::root(), max).detail,
                Err(_) => "value is too long".to_owned(),
            };
            let message = format!("{path} in body should be at most {max} chars long");
            Problem {
                field: Some(path.to_string()),
                kind: FieldErrorKind::TooLong,
                value: None,
                words: ProblemText::Both { detail, message },
            }
        });
        return;
    }
    if let Some(min) = checks.min_length.filter(|min| length() < *min) {
        return verdict.invalid(path, text.clone(), format_args!("should be at least {min} chars long"));
    }
    if let Some(pattern) = &checks.pattern {
        match pattern.get() {
            Ok(compiled) => {
                let take = |units| walk.meter.step(usize::try_from(units).unwrap_or(usize::MAX));
                // `None` means that the budget ended; [`finish`] reports that.
                if compiled.is_match_within(text, take) == Some(false) {
                    verdict.push(|| Problem {
                        field: Some(path.to_string()),
                        kind: FieldErrorKind::Invalid,
                        value: Some(text.clone().into()),
                        words: ProblemText::Match(&pattern.text),
                    });
                }
            }
            Err(error) => {
                let pattern = &pattern.text;
                let words = format_args!("should match '{pattern}, but pattern is invalid: {error}'");
                verdict.invalid(path, text.clone(), words);
            }
        }
    }
}

/// The error if a number does not fit the type and format of the schema.
fn out_of_range(number: &Value, node: &SchemaNode, what: &str, path: &ValuePath<'_>) -> Option<String> {
    if node.int_or_string || node.kind != "integer" {
        let narrow = node.kind == "number"
            && node.checks.as_ref().is_some_and(|checks| checks.format == "float")
            && matches!(number, Value::Float(f) if f.abs() > f64::from(f32::MAX));
        return narrow.then(|| format!("{what} value must be of type number with format float in {path}"));
    }
    let format = node.checks.as_ref().map_or("", |checks| checks.format.as_str());
    let whole = match number {
        Value::Int(number) => Some(*number),
        Value::UInt(number) => i64::try_from(*number).ok(),
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 9.2e18 => Some(*f as i64),
        _ => None,
    };
    let fits = whole.is_some_and(|number| format != "int32" || i32::try_from(number).is_ok());
    if fits {
        return None;
    }
    Some(if format.is_empty() {
        format!("{what} value must be of type integer (default format) in {path}")
    } else {
        format!("{what} value must be of type integer with format {format} in {path}")
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "Go converts between these types in the same way"
)]
fn number(
    value: &Value,
    node: &SchemaNode,
    checks: Option<&Checks>,
    path: &ValuePath<'_>,
    verdict: &mut ValidationResult<'_>,
) {
    if let Some(error) = out_of_range(value, node, "Checked", path) {
        verdict.whole(format_args!("{error}"));
    }
    let Some(checks) = checks else { return };
    let float = match value {
        Value::Int(number) => *number as f64,
        Value::UInt(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return,
    };
    let whole = value.as_int();
    let bound = |limit: f64, what: &str, verdict: &mut ValidationResult<'_>| {
        let error = out_of_range(&Value::Float(limit), node, what, path);
        let usable = error.is_none();
        if let Some(error) = error {
            verdict.whole(format_args!("{error}"));
        }
        usable
    };
    if let Some(factor) = checks.multiple_of {
        let native = bound(factor, "MultipleOf", verdict);
        match whole.filter(|_| native) {
            Some(number) => {
                let factor = factor as i64;
                if factor <= 0 {
                    let message =
                        format_args!("factor MultipleOf declared for {path} must be positive: {factor}");
                    verdict.wrong(path, FieldErrorKind::Invalid, factor, message);
                } else if number % factor != 0 {
                    verdict.invalid(path, number, format_args!("should be a multiple of {factor}"));
                }
            }
            None if factor <= 0.0 => {
                let shown = go_text(factor);
                let message = format_args!("factor MultipleOf declared for {path} must be positive: {shown}");
                verdict.wrong(path, FieldErrorKind::Invalid, factor, message);
            }
            None => {
                let times = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
                if !is_integral(times) {
                    let factor = go_text(factor);
                    verdict.invalid(path, float, format_args!("should be a multiple of {factor}"));
                }
            }
        }
    }
    if let Some(min) = checks.minimum {
        let native = bound(min, "Minimum boundary", verdict);
        let exclusive = checks.exclusive_minimum;
        let words = if exclusive { "should be greater than" } else { "should be greater than or equal to" };
        match whole.filter(|_| native) {
            Some(number) if number < min as i64 || (exclusive && number == min as i64) => {
                verdict.invalid(path, number, format_args!("{words} {}", min as i64));
            }
            None if float < min || (exclusive && float <= min) => {
                verdict.invalid(path, float, format_args!("{words} {}", go_text(min)));
            }
            _ => {}
        }
    }
    if let Some(max) = checks.maximum {
        let native = bound(max, "Maximum boundary", verdict);
        let exclusive = checks.exclusive_maximum;
        let words = if exclusive { "should be less than" } else { "should be less than or equal to" };
        match whole.filter(|_| native) {
            Some(number) if number > max as i64 || (exclusive && number == max as i64) => {
                verdict.invalid(path, number, format_args!("{words} {}", max as i64));
            }
            None if float > max || (exclusive && float >= max) => {
                verdict.invalid(path, float, format_args!("{words} {}", go_text(max)));
            }
            _ => {}
        }
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn too_many(path: &ValuePath<'_>, actual: usize, max: i64, things: &str, verdict: &mut ValidationResult<'_>) {
    verdict.push(|| {
        let error = FieldError::too_many(&value::Path::root(), actual, usize::try_from(max).unwrap_or(0));
        let message = format!("{path} in body should have at most {max} {things}");
        Problem {
            field: Some(path.to_string()),
            kind: FieldErrorKind::TooMany,
            value: error.bad_value,
            words: ProblemText::Both { detail: error.detail, message },
        }
    });
}

fn list<'a>(
    items: &[Value],
    node: &'a SchemaNode,
    checks: Option<&Checks>,
    path: &ValuePath<'_>,
    pair: Option<&CorrelatedPair<'_>>,
    walk: ValidationSettings<'_>,
    verdict: &mut ValidationResult<'a>,
) {
    if let Some(below) = node.items.as_deref() {
        for (index, item) in items.iter().enumerate() {
            let pair = pair.and_then(|pair| pair.index(index));
            let walk = walk.inside(verdict);
            verdict.merge(ratcheted(item, below, &ValuePath::Index(path, index), pair.as_ref(), walk));
        }
    }
    let Some(checks) = checks else { return };
    let size = count(items.len());
    if let Some(min) = checks.min_items.filter(|min| size < *min) {
        verdict.invalid(path, size, format_args!("should have at least {min} items"));
    }
    if let Some(max) = checks.max_items.filter(|max| size > *max) {
        too_many(path, items.len(), max, "items", verdict);
    }
    if checks.unique_items {
        let mut seen = HashSet::with_capacity(items.len());
        let is_new = |item: &Value| {
            let written = write::to_vec(item);
            walk.meter.step(1 + written.len() / TEXT_STEP);
            seen.insert(written)
        };
        if !items.iter().all(is_new) {
            verdict.invalid(path, "", format_args!("shouldn't contain duplicates"));
        }
    }
}

fn object<'a>(
    value: &Value,
    node: &'a SchemaNode,
    checks: Option<&Checks>,
    path: &ValuePath<'_>,
    pair: Option<&CorrelatedPair<'_>>,
    walk: ValidationSettings<'_>,
    verdict: &mut ValidationResult<'a>,
) {
    let Value::Map(map) = value else { return };
    walk.meter.step(map.len() + node.required.len());
    if let Some(checks) = checks {
        let size = count(map.len());
        if let Some(min) = checks.min_properties.filter(|min| size < *min) {
            verdict.invalid(path, size, format_args!("should have at least {min} properties"));
        }
        if let Some(max) = checks.max_properties.filter(|max| size > *max) {
            too_many(path, map.len(), max, "properties", verdict);
        }
    }
    match &node.additional {
        Some(additional) if !additional.allows => {
            for key in map.keys().filter(|key| node.property(key).is_none()) {
                let message = format_args!("{path}.{} in body is a forbidden property", shown(key));
                verdict.wrong(path, FieldErrorKind::Invalid, key.clone(), message);
            }
        }
        Some(additional) => {
            if let Some(values) = additional.node.as_deref() {
                for (key, value) in map.iter().filter(|(key, _)| node.property(key).is_none()) {
                    let pair = pair.and_then(|pair| pair.key(key));
                    let walk = walk.inside(verdict);
                    verdict.merge(ratcheted(
                        value,
                        values,
                        &ValuePath::Entry(path, key),
                        pair.as_ref(),
                        walk,
                    ));
                }
            }
        }
        None => {}
    }
    let is_root = matches!(path, ValuePath::Root);
    let mut known = node.properties.iter().peekable();
    for (key, value) in map.iter() {
        while known.next_if(|(name, _)| name < key).is_some() {}
        let Some((_, property)) = known.next_if(|(name, _)| name == key) else { continue };
        let fixed = is_root && matches!(key.as_str(), "kind" | "apiVersion");
        let pair = pair.filter(|_| !fixed).and_then(|pair| pair.key(key));
        let walk = walk.inside(verdict);
        verdict.merge(ratcheted(value, property, &ValuePath::Field(path, key), pair.as_ref(), walk));
    }
    for name in node.required.iter().filter(|name| !map.contains_key(name)) {
        verdict.push(|| Problem {
            field: Some(ValuePath::Field(path, name).to_string()),
            kind: FieldErrorKind::Required,
            value: None,
            words: ProblemText::Both {
                detail: String::new(),
                message: format!("{path}.{name} in body is required"),
            },
        });
    }
}

fn enumerated<'a>(
    value: &Value,
    checks: Option<&'a Checks>,
    path: &ValuePath<'_>,
    walk: ValidationSettings<'_>,
    verdict: &mut ValidationResult<'a>,
) {
    let Some(checks) = checks.filter(|checks| !checks.enumeration.is_empty()) else { return };
    let steps = checks.enumeration.steps(value);
    if !walk.meter.step(steps) || checks.enumeration.has(value, is_same) {
        return;
    }
    verdict.push(|| Problem {
        field: Some(path.to_string()),
        kind: FieldErrorKind::NotSupported,
        value: Some(value.clone()),
        words: ProblemText::OneOf(checks.enumeration.values()),
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
