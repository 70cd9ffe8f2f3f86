//! Match conditions: expressions that leave requests out.

use api::field::aggregate;
use cel::{Activation, Range};
use kinds::expressions::{Compiler, Offered, Returns};
use value::Value;

use crate::expression::{Expression, Frame, OUT_OF_BUDGET, Pace, Pause, Scope, Shape, Stop, Variables};
use crate::meter::{Conditions as Owner, Meter};

/// What all conditions of one webhook or policy may cost together.
const BUDGET: u64 = 2_500_000;

/// The match conditions of one webhook or policy.
#[derive(Clone, Debug)]
pub struct Conditions {
    expressions: Vec<Expression>,
    offered: Offered,
    composed: bool,
    fails_closed: bool,
}

/// What conditions say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// The request is to be looked at.
    Yes,
    /// It is left out.
    No,
    /// They failed, and nothing says that this may be ignored.
    Failed(String),
}

impl Conditions {
    /// Those of a webhook; `None` if it has none.
    pub fn of_webhook(webhook: &Value) -> Option<Self> {
        let fails_closed = webhook.str_at(&["failurePolicy"]) != Some("Ignore");
        Self::read(webhook, &Compiler::PLAIN, false, fails_closed)
    }

    /// Those of a policy's `spec`, which know its variables; `None` if it has none.
    pub fn of_policy(spec: &Value, compiler: &Compiler, params: bool, fails_closed: bool) -> Option<Self> {
        Self::read(spec, compiler, params, fails_closed).map(|read| Conditions { composed: true, ..read })
    }

    fn read(holder: &Value, compiler: &Compiler, params: bool, fails_closed: bool) -> Option<Self> {
        let list = holder.list_at(&["matchConditions"]);
        if list.is_empty() {
            return None;
        }
        let offered = Offered { params, authorizer: true, patches: false };
        let compile = |condition: &Value| {
            let text = condition.str_at(&["expression"]).unwrap_or_default();
            Expression::compile(text, compiler, offered, Returns::Bool)
        };
        let expressions = list.iter().map(compile).collect();
        Some(Conditions { expressions, offered, composed: false, fails_closed })
    }

    /// What they may cost.
    pub(crate) fn estimates(&self) -> impl Iterator<Item = Range> {
        self.expressions.iter().map(Expression::estimate)
    }

    /// The variables that they are evaluated with.
    pub fn shape(&self) -> Shape {
        Shape { params: self.offered.params, composed: self.composed, conditions: true, may_ask: true }
    }

    /// Evaluates them for a webhook. The error is what must be done first.
    pub fn evaluate(
        &self,
        scope: &Scope<'_>,
        owner: &Owner<'_>,
        meter: &dyn Meter,
    ) -> Result<Matched, Pause> {
        self.evaluate_with(Variables::NONE, scope.activation(self.shape()), scope.pace(), owner, meter)
    }

    /// Evaluates them: any that is false leaves the request out, whatever else fails; otherwise all failures count.
    pub fn evaluate_with(
        &self,
        variables: &Variables,
        base: &Activation<'_>,
        pace: &Pace,
        owner: &Owner<'_>,
        meter: &dyn Meter,
    ) -> Result<Matched, Pause> {
        let started = meter.now();
        let frame = Frame::new(variables, base, pace);
        let mut budget = BUDGET;
        let mut outcomes: Vec<Result<bool, String>> = Vec::with_capacity(self.expressions.len());
        for condition in &self.expressions {
            match condition.evaluate(&frame, &mut budget) {
                Ok(outcome) => outcomes.push(outcome.map(|value| value.as_bool() != Some(false))),
                Err(Stop::Check(check)) => return Err(Pause::Check(check)),
                Err(Stop::Late) => return Err(Pause::Late),
                Err(Stop::Budget) => {
                    meter.conditions_evaluated(owner, meter.now().saturating_sub(started));
                    return Ok(self.failed(OUT_OF_BUDGET.to_owned()));
                }
            }
        }
        let mut errors = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    meter.conditions_evaluated(owner, meter.now().saturating_sub(started));
                    return Ok(Matched::No);
                }
                Err(error) => {
                    meter.condition_failed(owner);
                    errors.push(error);
                }
            }
        }
        if errors.is_empty() {
            return Ok(Matched::Yes);
        }
        meter.conditions_evaluated(owner, meter.now().saturating_sub(started));
        Ok(self.failed(aggregate(errors)))
    }

    fn failed(&self, why: String) -> Matched {
        if self.fails_closed { Matched::Failed(why) } else { Matched::No }
    }
}
