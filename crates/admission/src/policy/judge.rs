//! One validating policy and one request to what it says.

use std::borrow::Cow;
use std::time::Duration;

use cel::{Activation, Val};
use value::{Str, Value};

use super::ValidatingPolicy;
use crate::Operation;
use crate::expression::{Frame, OUT_OF_BUDGET, Pace, Pause, Scope, Shape, Stop};
use crate::matching::Matched;
use crate::meter::{Conditions as Owner, Meter};

/// What all validations, and their messages, may cost together; the same again for annotations.
pub(super) const BUDGET: u64 = 10_000_000;
/// A message that is longer is not shown.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// What one expression or variable costs at most is a tenth of the budget, give or take the last step.
const FEW: usize = 8;

/// What one validation led to, if not simply to "yes".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Which one.
    pub(super) index: usize,
    /// Whether it counts; a failure that may be ignored does not.
    pub(super) denies: bool,
    pub(super) message: String,
    pub(super) reason: Str,
    pub(super) took: Duration,
}

/// What one audit annotation came to, if to anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// A value.
    Value(Str, String),
    /// A failure that denies.
    Failed(String, Duration),
}

/// What a policy says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Whether match conditions exclude the request, so that nothing else was evaluated.
    pub(super) excluded: bool,
    pub(super) decisions: Vec<Decision>,
    pub(super) annotations: Vec<Noted>,
}

/// The variables of a shape with `params` set.
pub(super) fn with_params<'x>(
    scope: &'x Scope<'_>,
    shape: Shape,
    params: Option<&'x Value>,
) -> Cow<'x, Activation<'x>> {
    match params {
        None => Cow::Borrowed(scope.activation(shape)),
        Some(params) => {
            let mut activation: Activation<'x> = scope.activation(shape).clone();
            activation.set("params", Val::data(params));
            Cow::Owned(activation)
        }
    }
}

/// Evaluates a policy. The error is what must be done first.
pub(super) fn judge(
    validating: &ValidatingPolicy,
    scope: &Scope<'_>,
    params: Option<&Value>,
    operation: Operation,
    meter: &dyn Meter,
) -> Result<Judgement, Pause> {
    let policy = &validating.policy;
    let failed = |message: String| Judgement {
        excluded: false,
        decisions: vec![Decision {
            index: 0,
            denies: policy.fails_closed,
            message,
            reason: Str::default(),
            took: Duration::ZERO,
        }],
        annotations: Vec::new(),
    };
    if let Some(conditions) = &policy.conditions {
        let base = with_params(scope, conditions.shape(), params);
        let owner = Owner { name: &policy.name, kind: "policy", phase: "validate", operation };
        match conditions.evaluate_with(&policy.variables, &base, scope.pace(), &owner, meter)? {
            Matched::Yes => {}
            Matched::No => return Ok(Judgement { excluded: true, ..Judgement::default() }),
            Matched::Failed(why) => {
                policy.account.failed(&why, meter.now());
                return Ok(failed(why));
            }
        }
    }
    let shape = Shape { params: policy.params.is_some(), composed: true, conditions: false, may_ask: true };
    let mut budget = BUDGET;
    let pace = scope.pace();
    let decisions = match validate(validating, &with_params(scope, shape, params), pace, &mut budget, meter) {
        Ok(decisions) => decisions,
        Err(Stop::Check(check)) => return Err(Pause::Check(check)),
        Err(Stop::Late) => return Err(Pause::Late),
        Err(Stop::Budget) => {
            policy.account.failed(OUT_OF_BUDGET, meter.now());
            return Ok(failed(OUT_OF_BUDGET.to_owned()));
        }
    };
    if decisions.is_empty() && !validating.says_more {
        return Ok(Judgement::default());
    }
    // From here on nobody can be asked.
    let unasked = Shape { may_ask: false, ..shape };
    let base = with_params(scope, unasked, params);
    let decisions = explain(validating, decisions, &base, pace, budget)?;
    match annotate(validating, &base, pace, meter) {
        Ok(annotations) => Ok(Judgement { excluded: false, decisions, annotations }),
        Err(Stop::Check(check)) => Err(Pause::Check(check)),
        Err(Stop::Late) => Err(Pause::Late),
        Err(Stop::Budget) => {
            policy.account.failed(OUT_OF_BUDGET, meter.now());
            Ok(failed(OUT_OF_BUDGET.to_owned()))
        }
    }
}

/// The first part: each validation. What is not decided by an error has no message yet.
fn validate(
    validating: &ValidatingPolicy,
    base: &Activation<'_>,
    pace: &Pace,
    budget: &mut u64,
    meter: &dyn Meter,
) -> Result<Vec<Decision>, Stop> {
    let policy = &validating.policy;
    let frame = Frame::new(&policy.variables, base, pace);
    let mut decisions = Vec::new();
    for (index, validation) in validating.validations.iter().enumerate() {
        let started = meter.now();
        let (denies, message) = match validation.expression.evaluate(&frame, budget)? {
            Ok(Val::Bool(true)) => continue,
            Ok(_) => (true, String::new()),
            Err(error) => {
                policy.account.failed(&error, meter.now());
                (policy.fails_closed, error)
            }
        };
        let reason = match validation.reason.as_str() {
            "" => Str::new_static("Invalid"),
            _ => validation.reason.clone(),
        };
        let took = meter.now().saturating_sub(started);
        decisions.push(Decision { index, denies, message, reason, took });
    }
    Ok(decisions)
}

/// The second part: messages. They are paid from what validations left, and cost that cannot be paid denies whatever was decided.
fn explain(
    validating: &ValidatingPolicy,
    mut decisions: Vec<Decision>,
    base: &Activation<'_>,
    pace: &Pace,
    mut budget: u64,
) -> Result<Vec<Decision>, Pause> {
    let validations = &validating.validations;
    let computed = validations.iter().filter(|validation| validation.message_expression.is_some()).count();
    let failing = decisions.iter().any(|decision| decision.message.is_empty());
    let may_exhaust = computed + validating.policy.variables.count() > FEW || budget < BUDGET / 10 * 9;
    let mut messages: Vec<Option<String>> = Vec::new();
    if computed > 0 && (failing || may_exhaust) {
        let frame = Frame::new(&validating.policy.variables, base, pace);
        for validation in validations {
            let Some(expression) = &validation.message_expression else {
                messages.push(None);
                continue;
            };
            match expression.evaluate(&frame, &mut budget) {
                Ok(outcome) => messages.push(outcome.ok().and_then(|value| shown(value.as_str()?))),
                Err(Stop::Check(check)) => return Err(Pause::Check(check)),
                Err(Stop::Late) => return Err(Pause::Late),
                Err(Stop::Budget) => return Ok(exhausted(validating, decisions)),
            }
        }
    }
    for decision in &mut decisions {
        if !decision.message.is_empty() {
            continue;
        }
        let Some(validation) = validations.get(decision.index) else { continue };
        let computed = messages.get_mut(decision.index).and_then(Option::take);
        decision.message = match computed {
            Some(message) => message,
            None if !validation.message.is_empty() => validation.message.to_string(),
            None => format!("failed expression: {}", validation.expression.text().trim()),
        };
    }
    Ok(decisions)
}

/// A computed message, if it is one that can be shown.
fn shown(message: &str) -> Option<String> {
    let message = message.trim();
    let usable = !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n');
    usable.then(|| message.to_owned())
}

/// Messages that cost too much deny in place of every validation that had no error.
fn exhausted(validating: &ValidatingPolicy, mut decisions: Vec<Decision>) -> Vec<Decision> {
    let message = || format!("failed messageExpression: {OUT_OF_BUDGET}");
    for index in 0..validating.validations.len() {
        let denies = validating.policy.fails_closed;
        match decisions.iter_mut().find(|decision| decision.index == index) {
            Some(decision) if !decision.message.is_empty() => {}
            Some(decision) => {
                decision.message = message();
                decision.denies = denies;
                decision.reason = Str::default();
            }
            None => decisions.push(Decision {
                index,
                denies,
                message: message(),
                reason: Str::default(),
                took: Duration::ZERO,
            }),
        }
    }
    decisions.sort_by_key(|decision| decision.index);
    decisions
}

/// The third part: audit annotations.
fn annotate(
    validating: &ValidatingPolicy,
    base: &Activation<'_>,
    pace: &Pace,
    meter: &dyn Meter,
) -> Result<Vec<Noted>, Stop> {
    let mut annotations = Vec::new();
    if validating.annotations.is_empty() {
        return Ok(annotations);
    }
    let frame = Frame::new(&validating.policy.variables, base, pace);
    let mut budget = BUDGET;
    for annotation in &validating.annotations {
        let started = meter.now();
        match annotation.value.evaluate(&frame, &mut budget)? {
            Ok(Val::Null) => {}
            Ok(value) => match value.as_str() {
                Some(text) if text.trim().is_empty() => {}
                Some(text) => annotations.push(Noted::Value(annotation.key.clone(), text.trim().to_owned())),
                None => {
                    let error = format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                        annotation.value.text(),
                        value.type_name(),
                    );
                    annotations.push(Noted::Failed(error, meter.now().saturating_sub(started)));
                }
            },
            Err(error) if validating.policy.fails_closed => {
                validating.policy.account.failed(&error, meter.now());
                annotations.push(Noted::Failed(error, meter.now().saturating_sub(started)));
            }
            Err(_) => {}
        }
    }
    Ok(annotations)
}
