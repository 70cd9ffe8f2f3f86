//! Match conditions: CEL expressions that exclude requests from a webhook or policy.

use api::field::aggregate;
use cel::{Activation, EstimateRange, OUT_OF_BUDGET};
use kinds::expressions::{Compiler, OptionalVariables, Returns};
use value::Value;

use crate::expression::{
    Activations, DeclaredVariables, EvaluationPause, EvaluationStop, Expression, PolicyEvaluation,
    PolicyVariables, YieldPacer,
};
use crate::metrics::{AdmissionMetrics, MatchConditionLabels};

/// The cost budget of all match conditions of one webhook or policy.
const BUDGET: u64 = 2_500_000;

#[derive(Clone, Debug)]
pub struct MatchConditions {
    expressions: Vec<Expression>,
    offered: OptionalVariables,
    composed: bool,
    fails_closed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionResult {
    /// The webhook or policy applies.
    Include,
    /// The webhook or policy is skipped: a condition is false, or evaluation failed and the failure policy is `Ignore`.
    Exclude,
    /// Evaluation failed, and the failure policy is `Fail`.
    Failed(String),
}

impl MatchConditions {
    /// `None` if the webhook has no match conditions.
    pub fn of_webhook(webhook: &Value) -> Option<Self> {
        let fails_closed = webhook.str_at(&["failurePolicy"]) != Some("Ignore");
        Self::read(webhook, &Compiler::PLAIN, false, fails_closed)
    }

    /// The conditions can use the policy's variables, which `compiler` knows. `None` if there are none.
    pub fn of_policy(spec: &Value, compiler: &Compiler, params: bool, fails_closed: bool) -> Option<Self> {
        Self::read(spec, compiler, params, fails_closed)
            .map(|read| MatchConditions { composed: true, ..read })
    }

    fn read(holder: &Value, compiler: &Compiler, params: bool, fails_closed: bool) -> Option<Self> {
        let list = holder.list_at(&["matchConditions"]);
        if list.is_empty() {
            return None;
        }
        let offered = OptionalVariables { params, authorizer: true, patches: false };
        let compile = |condition: &Value| {
            let text = condition.str_at(&["expression"]).unwrap_or_default();
            Expression::compile(text, compiler, offered, Returns::Bool)
        };
        let expressions = list.iter().map(compile).collect();
        Some(MatchConditions { expressions, offered, composed: false, fails_closed })
    }

    pub(crate) fn estimates(&self) -> impl Iterator<Item = EstimateRange> {
        self.expressions.iter().map(Expression::estimate)
    }

    pub fn declared_variables(&self) -> DeclaredVariables {
        DeclaredVariables {
            params: self.offered.params,
            composed: self.composed,
            conditions: true,
            authorizer: true,
        }
    }

    /// Evaluates the conditions of a webhook.
    pub fn evaluate(
        &self,
        activations: &Activations<'_>,
        labels: &MatchConditionLabels<'_>,
        metrics: &dyn AdmissionMetrics,
    ) -> Result<ConditionResult, EvaluationPause> {
        self.evaluate_with(
            PolicyVariables::NONE,
            activations.activation(self.declared_variables()),
            activations.pacer(),
            labels,
            metrics,
        )
    }

    /// A condition that is false excludes the request even if others fail. Otherwise all errors are reported.
    pub fn evaluate_with(
        &self,
        variables: &PolicyVariables,
        base: &Activation<'_>,
        pacer: &YieldPacer,
        labels: &MatchConditionLabels<'_>,
        metrics: &dyn AdmissionMetrics,
    ) -> Result<ConditionResult, EvaluationPause> {
        let started = metrics.now();
        let evaluation = PolicyEvaluation::new(variables, base, pacer);
        let mut budget = BUDGET;
        let mut outcomes: Vec<Result<bool, String>> = Vec::with_capacity(self.expressions.len());
        for condition in &self.expressions {
            match condition.evaluate(&evaluation, &mut budget) {
                Ok(outcome) => outcomes.push(outcome.map(|value| value.as_bool() != Some(false))),
                Err(EvaluationStop::Pause(pause)) => return Err(pause),
                Err(EvaluationStop::Budget) => {
                    metrics.conditions_evaluated(labels, metrics.now().saturating_sub(started));
                    return Ok(self.failed(OUT_OF_BUDGET.to_owned()));
                }
            }
        }
        let mut errors = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    metrics.conditions_evaluated(labels, metrics.now().saturating_sub(started));
                    return Ok(ConditionResult::Exclude);
                }
                Err(error) => {
                    metrics.condition_failed(labels);
                    errors.push(error);
                }
            }
        }
        if errors.is_empty() {
            return Ok(ConditionResult::Include);
        }
        metrics.conditions_evaluated(labels, metrics.now().saturating_sub(started));
        Ok(self.failed(aggregate(errors)))
    }

    fn failed(&self, why: String) -> ConditionResult {
        if self.fails_closed { ConditionResult::Failed(why) } else { ConditionResult::Exclude }
    }
}
