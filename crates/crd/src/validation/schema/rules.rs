//! Validates CEL rules and estimates their costs.

use api::validation::fields::{At, Read, Report};
use value::Value;

use super::{Cardinality, MOST_PER_RULE, MOST_PER_SCHEMA, SchemaContext, SchemaValidator};
use crate::rules::{self, RuleSource};
use crate::validation::{quoted, structural};
use crate::{SchemaNode, ValidationRule, field_path};

const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

impl SchemaValidator<'_> {
    /// Validates the rules of a schema. They are compiled only if the schema has had no error since `errors_before`.
    pub(super) fn rules(
        &mut self,
        schema: &Value,
        at: &At<'_>,
        context: SchemaContext<'_>,
        cardinality: Option<Cardinality>,
        errors_before: usize,
    ) {
        let written = schema.items("x-kubernetes-validations");
        if written.is_empty() {
            return;
        }
        let node = SchemaNode::read(schema);
        // Field paths are not checked in an unreadable schema.
        let readable = structural::unreadable(schema).is_none().then_some(&node);
        let list = at.field("x-kubernetes-validations");
        for (i, (rule, read)) in written.iter().zip(&node.rules).enumerate() {
            self.written(rule, read, readable, &list.index(i));
        }
        let cardinality = cardinality.filter(|_| self.schema_errors.len() == errors_before);
        let Some(Cardinality(cardinality)) = cardinality else { return };
        let is_resource = context.is_root || schema.flag("x-kubernetes-embedded-resource");
        let watch = self.strict.stopwatch.as_deref();
        let source = RuleSource { node: &node, schema, is_resource };
        let Some(compiled) = rules::compile(source, true, watch) else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.rule_errors.internal(&list, detail);
            return;
        };
        for (i, (rule, compilation)) in written.iter().zip(&compiled.rules).enumerate() {
            let rule_at = list.index(i);
            let times = cardinality.unwrap_or(compiled.max_cardinality);
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

#[expect(clippy::cast_precision_loss, reason = "a factor for people to read")]
pub(super) fn too_costly(what: &str, cost: u64, most: u64) -> String {
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
