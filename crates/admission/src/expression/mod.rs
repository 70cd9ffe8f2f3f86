//! Evaluation of CEL expressions of webhooks and policies.
//!
//! [`ExpressionInput`] holds a request as expressions see it; [`Activations`] turns it into CEL activations,
//! shared by all policies. [`PolicyEvaluation`] adds the variables of one policy. Evaluation is synchronous:
//! an authorizer check without a cached decision stops it with [`EvaluationPause::Check`];
//! [`AuthorizerDecisions`] gets the decision, and the caller evaluates again. [`YieldPacer`] yields to other
//! tasks between evaluations; one that takes long is interrupted and evaluated again in the heavy lane. Requests past
//! their deadline are rejected.

mod authorizer_decisions;
mod evaluation;
mod input;
mod yielding;

pub use authorizer_decisions::AuthorizerDecisions;
pub use evaluation::{
    EvaluationPause, EvaluationStop, Expression, PolicyEvaluation, PolicyVariable, PolicyVariables,
};
pub use input::{Activations, DeclaredVariables, ExpressionInput, visible_namespace};
pub use yielding::{QUICK_COST, YieldPacer, take_yielded_cost, yield_now};
