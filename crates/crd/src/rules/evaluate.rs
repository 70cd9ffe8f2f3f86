//! Runs compiled rules on a value and the values below it.

use api::field::{FieldError, FieldErrorKind, quote};
use api::validation::fields::{At, Report};
use cel::{Activation, ErrorKind, Evaluation, OUT_OF_BUDGET, Program, Val};
use value::{BudgetEnded, Map, Value};

use super::compile::{CompiledRule, RuleNode};
use crate::compiled::ValidationFindings;
use crate::correlate::{CorrelatedPair, Counterparts};
use crate::node::{SchemaNode, ValidationRule};
use crate::stopwatch::timed;
use crate::strategy::ValidationBounds;
use crate::validation_result::{MAX_PROBLEMS, MAX_REPORTED_BYTES, is_full};

/// Longest message, in bytes, that a `messageExpression` may return.
const LONGEST_MESSAGE: usize = 5 * 1024;

pub(super) const TOO_MANY_STEPS: &str =
    "validation takes too many steps, no further validation rules will be run";

/// Decides whether an error becomes a warning: the value, or else the nearest enclosing value that can be correlated, did not change.
#[derive(Clone, Copy)]
pub(super) struct Ratchet<'v, 'p> {
    current: Option<&'v CorrelatedPair<'p>>,
    nearest: Option<&'v CorrelatedPair<'p>>,
}

impl<'v, 'p> Ratchet<'v, 'p> {
    /// For a whole object and its old version, if there is one.
    pub(super) fn of(pair: Option<&'v CorrelatedPair<'p>>) -> Self {
        Ratchet { current: pair, nearest: None }
    }

    fn is_unchanged(self) -> bool {
        self.current.or(self.nearest).is_some_and(CorrelatedPair::is_unchanged)
    }

    /// For a value directly below, which is correlated with an old one by `pair`.
    fn below(self, pair: Option<&'v CorrelatedPair<'p>>) -> Self {
        match self.current {
            None => self,
            Some(current) => Ratchet { current: pair, nearest: Some(current) },
        }
    }

    fn index(self, index: usize) -> Option<CorrelatedPair<'p>> {
        self.current.and_then(|pair| pair.index(index))
    }

    fn key(self, key: &str) -> Option<CorrelatedPair<'p>> {
        self.current.and_then(|pair| pair.key(key))
    }
}

/// A value that rules run on.
#[derive(Clone, Copy)]
pub(super) struct RuleInput<'v, 'p> {
    pub(super) node: &'v SchemaNode,
    pub(super) new: &'v Value,
    /// The old value that it corresponds to, if there is one.
    pub(super) old: Option<&'v Value>,
    pub(super) ratchet: Ratchet<'v, 'p>,
    pub(super) at: &'v At<'v>,
}

impl RuleInput<'_, '_> {
    /// The type of the value, which errors about a rule itself report as the bad value.
    fn type_name(&self) -> Value {
        Value::from(self.node.kind.clone())
    }
}

struct RuleVariables<'v> {
    plain: Activation<'v>,
    /// Has `oldSelf` as an optional value.
    optional: Activation<'v>,
}

/// The CEL cost budget or the request's budget is used up, or the error limit is reached.
struct Exhausted;

/// One run of the rules of a schema and of all schemas below it.
pub(super) struct RuleRun<'f> {
    /// The CEL cost that may still be spent; once it is negative, no more rules may run.
    budget: i64,
    found: &'f mut ValidationFindings,
    bounds: ValidationBounds<'f>,
}

impl<'f> RuleRun<'f> {
    pub(super) fn new(budget: i64, bounds: ValidationBounds<'f>, found: &'f mut ValidationFindings) -> Self {
        RuleRun { budget, found, bounds }
    }

    /// The CEL cost that is left.
    pub(super) fn budget(&self) -> i64 {
        self.budget
    }

    /// Runs the rules on a value until all did or a limit is reached, which is one of the errors then.
    pub(super) fn value(&mut self, rules: &RuleNode, input: RuleInput<'_, '_>) {
        let _ = self.timed_value(rules, input);
    }

    fn timed_value(&mut self, rules: &RuleNode, input: RuleInput<'_, '_>) -> Result<(), Exhausted> {
        self.spend(1, input.at)?;
        let watch = self.bounds.watch;
        timed(watch, |watch, took| watch.evaluated(took), || self.value_and_below(rules, input))
    }

    fn value_and_below(&mut self, rules: &RuleNode, input: RuleInput<'_, '_>) -> Result<(), Exhausted> {
        if input.new.is_null() {
            return Ok(());
        }
        let input = RuleInput { old: input.old.filter(|old| !old.is_null()), ..input };
        self.own_rules(rules, input)?;
        match input.new {
            Value::List(items) => self.items(rules, items, input),
            Value::Map(map) => self.fields(rules, map, input),
            _ => Ok(()),
        }
    }

    fn items(
        &mut self,
        rules: &RuleNode,
        items: &[Value],
        input: RuleInput<'_, '_>,
    ) -> Result<(), Exhausted> {
        let Some((below, node)) = rules.items.as_deref().zip(input.node.items.as_deref()) else {
            return Ok(());
        };
        let olds = Counterparts::new(input.node, input.old.and_then(Value::as_list).unwrap_or_default());
        for (index, item) in items.iter().enumerate() {
            let pair = input.ratchet.index(index);
            let ratchet = input.ratchet.below(pair.as_ref());
            let at = &input.at.index(index);
            self.timed_value(below, RuleInput { node, new: item, old: olds.of(item), ratchet, at })?;
        }
        Ok(())
    }

    fn fields(&mut self, rules: &RuleNode, map: &Map, input: RuleInput<'_, '_>) -> Result<(), Exhausted> {
        // Only maps of a known type have values that can be correlated with old ones.
        let correlates = matches!(input.node.map_type.as_deref(), None | Some("granular" | "atomic"));
        let before = input.old.and_then(Value::as_map).filter(|_| correlates);
        let ratchet = input.ratchet;
        if let Some((below, node)) = rules.values.as_deref().zip(input.node.values()) {
            for (key, value) in map.iter() {
                let pair = ratchet.key(key);
                let ratchet = ratchet.below(pair.as_ref());
                let old = before.and_then(|old| old.get(key));
                self.timed_value(
                    below,
                    RuleInput { node, new: value, old, ratchet, at: &input.at.key(key) },
                )?;
            }
        }
        for (name, below) in &rules.properties {
            let (Some(value), Some(node)) = (map.get(name), input.node.property(name)) else { continue };
            let is_type = matches!(name.as_str(), "apiVersion" | "kind");
            let pair = ratchet.key(name);
            let ratchet = if ratchet.current.is_some() && ratchet.nearest.is_none() && is_type {
                Ratchet::of(None)
            } else {
                ratchet.below(pair.as_ref())
            };
            let old = before.and_then(|old| old.get(name));
            self.timed_value(below, RuleInput { node, new: value, old, ratchet, at: &input.at.field(name) })?;
        }
        Ok(())
    }

    /// Runs the rules of the value's own schema.
    fn own_rules(&mut self, rules: &RuleNode, input: RuleInput<'_, '_>) -> Result<(), Exhausted> {
        if let Some(error) = rules.error {
            let detail = format!("rule compiler initialization error: {error}");
            self.found.errors.invalid(input.at, input.type_name(), detail);
            return self.stop_if_full();
        }
        let Some(own) = &rules.own else { return Ok(()) };
        if self.budget <= 0 {
            self.found.errors.invalid(input.at, input.type_name(), OUT_OF_BUDGET);
            return Err(self.exhausted());
        }
        let data = Val::typed(input.new, Some(&own.schema));
        let before = input.old.map(|old| Val::typed(old, Some(&own.schema)));
        let mut plain = Activation::new(&own.env).with("self", data.clone());
        if let Some(before) = &before {
            plain.set("oldSelf", before.clone());
        }
        let optional = Activation::new(&own.optional_env)
            .with("self", data)
            .with("oldSelf", before.map_or(Val::NONE, Val::some));
        let variables = RuleVariables { plain, optional };
        for rule in &own.rules {
            self.rule(rule, input, &variables)?;
        }
        Ok(())
    }

    fn rule<'v>(
        &mut self,
        compiled: &'v CompiledRule,
        input: RuleInput<'_, '_>,
        variables: &RuleVariables<'v>,
    ) -> Result<(), Exhausted> {
        let rule = &compiled.rule;
        if rule.rule.trim().is_empty() {
            return Ok(());
        }
        let program = match &compiled.program {
            Ok(program) => program,
            Err(error) => {
                let detail = format!("rule compile error: {error}");
                self.found.errors.invalid(input.at, input.type_name(), detail);
                return self.stop_if_full();
            }
        };
        let is_optional = rule.optional_old_self == Some(true);
        if compiled.uses_old_self && input.old.is_none() && !is_optional {
            return Ok(());
        }
        let activation = if is_optional { &variables.optional } else { &variables.plain };
        let evaluation = program.run(activation, self.call_limit());
        let cost = i64::try_from(evaluation.cost).unwrap_or(i64::MAX);
        if cost > self.budget {
            self.found.errors.invalid(input.at, input.type_name(), OUT_OF_BUDGET);
            return Err(self.exhausted());
        }
        self.budget -= cost;
        self.spend(steps(&evaluation), input.at)?;
        match evaluation.outcome {
            Ok(value) if value.as_bool() == Some(true) => Ok(()),
            Ok(_) => self.report_failed(compiled, input, &variables.plain),
            Err(error) => self.report_error(rule, &error, input),
        }
    }

    /// Reports an evaluation that ended with an error.
    fn report_error(
        &mut self,
        rule: &ValidationRule,
        error: &cel::Error,
        input: RuleInput<'_, '_>,
    ) -> Result<(), Exhausted> {
        let (text, rule) = (error.to_string(), rule_text(rule));
        let limit = is_limit(error);
        let detail = if text.starts_with("no such overload") {
            format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
            )
        } else if limit {
            format!(
                "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
            )
        } else {
            format!("{text} evaluating rule: {rule}")
        };
        self.found.errors.invalid(input.at, input.type_name(), detail);
        if limit { Err(self.exhausted()) } else { self.stop_if_full() }
    }

    /// Reports a rule that evaluated to false: its path, reason and message.
    fn report_failed(
        &mut self,
        compiled: &CompiledRule,
        input: RuleInput<'_, '_>,
        variables: &Activation<'_>,
    ) -> Result<(), Exhausted> {
        let rule = &compiled.rule;
        let field = match compiled.field_path.as_str() {
            "" => input.at.to_string(),
            path => input.at.field(path).to_string(),
        };
        let as_warning = !compiled.uses_old_self && input.ratchet.is_unchanged();
        let computed = match &compiled.message {
            Some(Ok(program)) => match self.message(program, rule, variables) {
                Ok(message) => message,
                Err(detail) => {
                    let (kind, bad_value) = (FieldErrorKind::Invalid, Some(input.type_name()));
                    self.add(FieldError { kind, field, bad_value, detail }, as_warning);
                    return Err(self.exhausted());
                }
            },
            _ => None,
        };
        let detail = computed.unwrap_or_else(|| {
            if rule.message.is_empty() {
                format!("failed rule: {}", rule_text(rule))
            } else {
                rule.message.trim().to_owned()
            }
        });
        let bad_value = (!matches!(input.node.kind.as_str(), "object" | "array")).then(|| input.new.clone());
        let (kind, bad_value, detail) = match rule.reason.as_str() {
            "FieldValueForbidden" => (FieldErrorKind::Forbidden, None, detail),
            "FieldValueRequired" => (FieldErrorKind::Required, None, detail),
            "FieldValueDuplicate" => (FieldErrorKind::Duplicate, bad_value, String::new()),
            _ => (FieldErrorKind::Invalid, bad_value, detail),
        };
        self.add(FieldError { kind, field, bad_value, detail }, as_warning);
        self.stop_if_full()
    }

    /// The message computed by `messageExpression`; `None` if the rule's `message` applies. An error ends the evaluation of all rules.
    fn message(
        &mut self,
        program: &Program,
        rule: &ValidationRule,
        activation: &Activation<'_>,
    ) -> Result<Option<String>, String> {
        let evaluation = program.run(activation, self.call_limit());
        // If this uses up the budget, the next rule does not run.
        let _ = self.bounds.budget.spend(steps(&evaluation));
        let cost = i64::try_from(evaluation.cost).unwrap_or(i64::MAX);
        if cost > self.budget {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        }
        let value = match evaluation.outcome {
            Ok(value) => value,
            Err(error) if is_limit(&error) => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    quote(&rule.message_expression)
                ));
            }
            Err(_) => {
                self.budget -= cost;
                return Ok(None);
            }
        };
        self.budget -= cost;
        let text = value.as_str().map(str::trim).unwrap_or_default();
        let usable = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        Ok(usable.then(|| text.to_owned()))
    }

    /// Spends steps of the request's budget: one for each value that has rules, plus those of the evaluations. The CEL cost of rules is
    /// counted separately, as in Kubernetes.
    fn spend(&mut self, steps: u64, at: &At<'_>) -> Result<(), Exhausted> {
        let detail = match self.bounds.budget.spend(steps) {
            Ok(()) => return Ok(()),
            Err(BudgetEnded::Exhausted) => TOO_MANY_STEPS,
            Err(BudgetEnded::Canceled) => "validation rules were canceled because the request ended",
        };
        self.found.errors.forbidden(at, detail);
        Err(self.exhausted())
    }

    /// CEL cost limit of one evaluation. An evaluation that exceeds the request's remaining budget ends early, and its result is
    /// discarded.
    fn call_limit(&self) -> u64 {
        cel::PER_CALL_LIMIT.min(self.bounds.budget.left().saturating_add(1))
    }

    fn exhausted(&mut self) -> Exhausted {
        self.budget = -1;
        Exhausted
    }

    /// Stops when the limit of reported errors is reached: each of a million items may break a rule.
    fn stop_if_full(&mut self) -> Result<(), Exhausted> {
        if is_full(&self.found.errors) { Err(self.exhausted()) } else { Ok(()) }
    }

    fn add(&mut self, error: FieldError, as_warning: bool) {
        if as_warning {
            let bytes: usize = self.found.warnings.iter().map(String::len).sum();
            if self.found.warnings.len() < MAX_PROBLEMS && bytes < MAX_REPORTED_BYTES {
                self.found.warnings.push(error.to_string());
            }
        } else {
            self.found.errors.push(error);
        }
    }
}

/// Whether an evaluation ended because it was too expensive, so that no further rule runs.
fn is_limit(error: &cel::Error) -> bool {
    matches!(error.kind(), ErrorKind::CostLimit | ErrorKind::PatternLimit(_))
}

/// The cost of an evaluation in steps of the request's budget.
fn steps(evaluation: &Evaluation<'_>) -> u64 {
    evaluation.cost.saturating_add(evaluation.pattern_work).saturating_add(evaluation.uncharged_work)
}

/// The text that identifies a rule in errors: its message, or else its expression.
fn rule_text(rule: &ValidationRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}
