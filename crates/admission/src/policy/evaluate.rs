//! Evaluates one validating policy for one request.

use std::borrow::Cow;
use std::time::Duration;

use cel::{Activation, OUT_OF_BUDGET, Val};
use value::text::first_bytes;
use value::{Str, Value};

use super::ValidatingPolicy;
use crate::Operation;
use crate::expression::{
    Activations, DeclaredVariables, EvaluationPause, EvaluationStop, PolicyEvaluation, YieldPacer,
};
use crate::matching::ConditionResult;
use crate::metrics::{AdmissionMetrics, MatchConditionLabels};

/// Cost budget of all validations with their messages. All audit annotations together, and each mutation of a mutating
/// policy, have a budget of the same size.
pub(super) const BUDGET: u64 = 10_000_000;
/// Longer computed messages are ignored.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// Total bytes of the errors and computed messages of one evaluation. Further ones are truncated to
/// [`MAX_CUT_MESSAGE_BYTES`].
const MAX_TOTAL_MESSAGE_BYTES: usize = 1 << 20;
const MAX_CUT_MESSAGE_BYTES: usize = 256;
/// Longer values of audit annotations are truncated to this many bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
/// With at least 90 % of the budget left, so many message expressions and variables cannot exhaust it: each
/// costs at most a tenth of the budget.
const EXPRESSIONS_WITHIN_TENTH: usize = 8;

/// A validation that was false or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyDecision {
    /// The index in `spec.validations`.
    pub(super) index: usize,
    /// Whether the request is denied. False for an error under `failurePolicy: Ignore`.
    pub(super) denies: bool,
    pub(super) message: String,
    pub(super) reason: Str,
    pub(super) took: Duration,
}

/// An audit annotation that has a value or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnnotationOutcome {
    Value(Str, String),
    /// An error that denies the request.
    Failed(String, Duration),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyOutcome {
    /// Whether match conditions excluded the request. Then the rest is empty.
    pub(super) excluded: bool,
    pub(super) decisions: Vec<PolicyDecision>,
    pub(super) annotations: Vec<AnnotationOutcome>,
}

/// The remaining bytes of the errors and messages of one evaluation.
struct MessageRoom(usize);

impl MessageRoom {
    /// The message, truncated if there is no room for it.
    fn take(&mut self, mut message: String) -> String {
        match self.0.checked_sub(message.len()) {
            Some(left) => self.0 = left,
            None => message.truncate(first_bytes(&message, MAX_CUT_MESSAGE_BYTES).len()),
        }
        message
    }
}

/// The activation for the declared variables, with `params` set.
pub(super) fn with_params<'x>(
    activations: &'x Activations<'_>,
    declared: DeclaredVariables,
    params: Option<&'x Value>,
) -> Cow<'x, Activation<'x>> {
    match params {
        None => Cow::Borrowed(activations.activation(declared)),
        Some(params) => {
            let mut activation: Activation<'x> = activations.activation(declared).clone();
            activation.set("params", Val::data(params));
            Cow::Owned(activation)
        }
    }
}

/// Evaluates a policy with one parameter object, if it has parameters.
pub(super) fn evaluate(
    validating: &ValidatingPolicy,
    activations: &Activations<'_>,
    params: Option<&Value>,
    operation: Operation,
    metrics: &dyn AdmissionMetrics,
) -> Result<PolicyOutcome, EvaluationPause> {
    let policy = &validating.policy;
    let record_error = |message: String| PolicyOutcome {
        excluded: false,
        decisions: vec![PolicyDecision {
            index: 0,
            denies: policy.fails_closed,
            message,
            reason: Str::default(),
            took: Duration::ZERO,
        }],
        annotations: Vec::new(),
    };
    if let Some(conditions) = &policy.conditions {
        let base = with_params(activations, conditions.declared_variables(), params);
        let labels =
            MatchConditionLabels { name: &policy.name, kind: "policy", phase: "validate", operation };
        match conditions.evaluate_with(&policy.variables, &base, activations.pacer(), &labels, metrics)? {
            ConditionResult::Include => {}
            ConditionResult::Exclude => {
                return Ok(PolicyOutcome { excluded: true, ..PolicyOutcome::default() });
            }
            ConditionResult::Failed(why) => {
                policy.inventory.record_error(&why, metrics.now());
                return Ok(record_error(why));
            }
        }
    }
    let declared = DeclaredVariables {
        params: policy.params.is_some(),
        composed: true,
        conditions: false,
        authorizer: true,
    };
    let mut budget = BUDGET;
    let pacer = activations.pacer();
    let decisions = match evaluate_validations(
        validating,
        &with_params(activations, declared, params),
        pacer,
        &mut budget,
        metrics,
    ) {
        Ok(decisions) => decisions,
        Err(EvaluationStop::Pause(pause)) => return Err(pause),
        Err(EvaluationStop::Budget) => {
            policy.inventory.record_error(OUT_OF_BUDGET, metrics.now());
            return Ok(record_error(OUT_OF_BUDGET.to_owned()));
        }
    };
    if decisions.is_empty() && !validating.has_computed_output {
        return Ok(PolicyOutcome::default());
    }
    // Messages and annotations are evaluated without the authorizer, as in Kubernetes.
    let without_authorizer = DeclaredVariables { authorizer: false, ..declared };
    let base = with_params(activations, without_authorizer, params);
    let decisions = add_messages(validating, decisions, &base, pacer, budget)?;
    match evaluate_annotations(validating, &base, pacer, metrics) {
        Ok(annotations) => Ok(PolicyOutcome { excluded: false, decisions, annotations }),
        Err(EvaluationStop::Pause(pause)) => Err(pause),
        Err(EvaluationStop::Budget) => {
            policy.inventory.record_error(OUT_OF_BUDGET, metrics.now());
            Ok(record_error(OUT_OF_BUDGET.to_owned()))
        }
    }
}

/// Evaluates all validations. Decisions without an error get their message in [`add_messages`].
fn evaluate_validations(
    validating: &ValidatingPolicy,
    base: &Activation<'_>,
    pacer: &YieldPacer,
    budget: &mut u64,
    metrics: &dyn AdmissionMetrics,
) -> Result<Vec<PolicyDecision>, EvaluationStop> {
    let policy = &validating.policy;
    let evaluation = PolicyEvaluation::new(&policy.variables, base, pacer);
    let mut decisions = Vec::new();
    let mut room = MessageRoom(MAX_TOTAL_MESSAGE_BYTES);
    for (index, validation) in validating.validations.iter().enumerate() {
        let started = metrics.now();
        let (denies, message) = match validation.expression.evaluate(&evaluation, budget)? {
            Ok(Val::Bool(true)) => continue,
            Ok(_) => (true, String::new()),
            Err(error) => {
                policy.inventory.record_error(&error, metrics.now());
                (policy.fails_closed, room.take(error))
            }
        };
        let reason = match validation.reason.as_str() {
            "" => Str::new_static("Invalid"),
            _ => validation.reason.clone(),
        };
        let took = metrics.now().saturating_sub(started);
        decisions.push(PolicyDecision { index, denies, message, reason, took });
    }
    Ok(decisions)
}

/// Adds messages. Message expressions use the budget that validations left; if it is exceeded, every validation without
/// an error fails ([`budget_exceeded`]), even one that passed. If all passed, the expressions are evaluated only if they
/// could exceed it.
fn add_messages(
    validating: &ValidatingPolicy,
    mut decisions: Vec<PolicyDecision>,
    base: &Activation<'_>,
    pacer: &YieldPacer,
    mut budget: u64,
) -> Result<Vec<PolicyDecision>, EvaluationPause> {
    let validations = &validating.validations;
    let computed = validations.iter().filter(|validation| validation.message_expression.is_some()).count();
    let failing = decisions.iter().any(|decision| decision.message.is_empty());
    let may_exhaust =
        computed + validating.policy.variables.count() > EXPRESSIONS_WITHIN_TENTH || budget < BUDGET / 10 * 9;
    let mut messages: Vec<Option<String>> = Vec::new();
    let mut room = MessageRoom(MAX_TOTAL_MESSAGE_BYTES);
    if computed > 0 && (failing || may_exhaust) {
        let evaluation = PolicyEvaluation::new(&validating.policy.variables, base, pacer);
        for validation in validations {
            let Some(expression) = &validation.message_expression else {
                messages.push(None);
                continue;
            };
            match expression.evaluate(&evaluation, &mut budget) {
                Ok(outcome) => {
                    let message = outcome.ok().and_then(|value| usable_message(value.as_str()?));
                    messages.push(message.map(|message| room.take(message)));
                }
                Err(EvaluationStop::Pause(pause)) => return Err(pause),
                Err(EvaluationStop::Budget) => return Ok(budget_exceeded(validating, decisions)),
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

/// A computed message, unless it is empty, too long or has several lines.
fn usable_message(message: &str) -> Option<String> {
    let message = message.trim();
    let usable = !message.is_empty() && message.len() <= MAX_MESSAGE_BYTES && !message.contains('\n');
    usable.then(|| message.to_owned())
}

/// The decisions if message expressions exceeded the budget: every validation that had no error fails with that. It
/// denies only under `failurePolicy: Fail`.
fn budget_exceeded(validating: &ValidatingPolicy, mut decisions: Vec<PolicyDecision>) -> Vec<PolicyDecision> {
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
            None => decisions.push(PolicyDecision {
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

fn evaluate_annotations(
    validating: &ValidatingPolicy,
    base: &Activation<'_>,
    pacer: &YieldPacer,
    metrics: &dyn AdmissionMetrics,
) -> Result<Vec<AnnotationOutcome>, EvaluationStop> {
    let mut annotations = Vec::new();
    if validating.annotations.is_empty() {
        return Ok(annotations);
    }
    let evaluation = PolicyEvaluation::new(&validating.policy.variables, base, pacer);
    let mut budget = BUDGET;
    for annotation in &validating.annotations {
        let started = metrics.now();
        match annotation.value.evaluate(&evaluation, &mut budget)? {
            Ok(Val::Null) => {}
            Ok(value) => match value.as_str() {
                Some(text) if text.trim().is_empty() => {}
                Some(text) => {
                    let text = first_bytes(text.trim(), MAX_ANNOTATION_BYTES).to_owned();
                    annotations.push(AnnotationOutcome::Value(annotation.key.clone(), text));
                }
                None => {
                    let error = format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                        annotation.value.text(),
                        value.type_name(),
                    );
                    annotations.push(AnnotationOutcome::Failed(error, metrics.now().saturating_sub(started)));
                }
            },
            Err(error) if validating.policy.fails_closed => {
                validating.policy.inventory.record_error(&error, metrics.now());
                annotations.push(AnnotationOutcome::Failed(error, metrics.now().saturating_sub(started)));
            }
            Err(_) => {}
        }
    }
    Ok(annotations)
}
