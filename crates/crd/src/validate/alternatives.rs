//! Validates `anyOf`, `oneOf`, `allOf` and `not`.

use std::fmt;

use api::field::quote;
use value::Value;

use super::{ValueContext, validate};
use crate::node::{Checks, SchemaNode};
use crate::validation_result::{ValidationResult, ValuePath};

/// Validates a value against the alternatives of a schema. Most alternatives of `anyOf` and `oneOf` fail, so they are validated without
/// messages; if all fail, the best one is validated again with messages.
pub(super) fn alternatives<'a>(
    value: &Value,
    checks: &'a Checks,
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    if !checks.any_of.is_empty() {
        any_of(value, &checks.any_of, context, result);
    }
    if !checks.one_of.is_empty() {
        one_of(value, &checks.one_of, context, result);
    }
    if !checks.all_of.is_empty() {
        all_of(value, &checks.all_of, context, result);
    }
    if let Some(not) = &checks.not
        && validate(value, not, silent(context)).is_valid()
    {
        let path = Quoted(context.path);
        result.add_object_problem(format_args!("{path} must not validate the schema (not)"));
    }
    result.matched += 1;
}

/// The failed alternative with the most matching checks, and their number.
type BestMatch<'a> = Option<(u64, &'a SchemaNode)>;

/// Makes a failed alternative the best one if it matches more than the best so far.
fn consider<'a>(best: &mut BestMatch<'a>, failed: &ValidationResult<'a>, node: &'a SchemaNode) {
    if best.is_none_or(|(matched, _)| failed.matched > matched) {
        *best = Some((failed.matched, node));
    }
}

fn any_of<'a>(
    value: &Value,
    nodes: &'a [SchemaNode],
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let mut best: BestMatch<'a> = None;
    for node in nodes {
        let alternative = validate(value, node, silent(context));
        if alternative.is_valid() {
            return result.merge(alternative);
        }
        consider(&mut best, &alternative, node);
    }
    let path = Quoted(context.path);
    result.add_object_problem(format_args!("{path} must validate at least one schema (anyOf)"));
    describe(best, value, context, result);
}

fn one_of<'a>(
    value: &Value,
    nodes: &'a [SchemaNode],
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let mut best: BestMatch<'a> = None;
    let mut first = None;
    let mut passed = 0;
    for node in nodes {
        let alternative = validate(value, node, silent(context));
        if alternative.is_valid() {
            passed += 1;
            best = None;
            first = first.or(Some(alternative));
        } else if passed == 0 {
            consider(&mut best, &alternative, node);
        }
    }
    let path = Quoted(context.path);
    match passed {
        1 => result.merge(first.unwrap_or_default()),
        0 => result.add_object_problem(format_args!(
            "{path} must validate one and only one schema (oneOf). Found none valid"
        )),
        passed => result.add_object_problem(format_args!(
            "{path} must validate one and only one schema (oneOf). Found {passed} valid alternatives"
        )),
    }
    describe(best, value, context, result);
}

fn all_of<'a>(
    value: &Value,
    nodes: &'a [SchemaNode],
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    let mut passed = 0;
    for node in nodes {
        let settings = context.settings.inside(result);
        let part = validate(value, node, ValueContext { settings, ..context });
        passed += usize::from(part.is_valid());
        result.merge(part);
    }
    if passed != nodes.len() {
        let path = Quoted(context.path);
        let none = if passed == 0 { ". None validated" } else { "" };
        result.add_object_problem(format_args!("{path} must validate all the schemas (allOf){none}"));
    }
}

/// Validates the best failed alternative again with messages, if messages are wanted.
fn describe<'a>(
    best: BestMatch<'a>,
    value: &Value,
    context: ValueContext<'_, '_>,
    result: &mut ValidationResult<'a>,
) {
    match best {
        Some((_, node)) if context.settings.describes => result.merge(validate(value, node, context)),
        Some((matched, _)) => result.matched += matched,
        None => {}
    }
}

fn silent<'v, 'p>(context: ValueContext<'v, 'p>) -> ValueContext<'v, 'p> {
    ValueContext { settings: context.settings.silently(), ..context }
}

/// A quoted path, formatted only when it is printed.
struct Quoted<'a>(&'a ValuePath<'a>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.0.to_string()))
    }
}
