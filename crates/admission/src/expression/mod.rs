//! Running the expressions of webhooks and policies.
//!
//! [`Facts`] are what expressions see of a request; [`Scope`] makes CEL's variables of them, once for all policies. [`Frame`] adds
//! the variables of one policy, each computed when it is first read. Evaluation never waits: a question to the authorizer that has
//! no answer yet ends it with [`Stop::Check`]; [`Checks`] gets the answer and whoever asked evaluates again.

mod checks;
mod facts;
mod frame;

pub use checks::Checks;
pub use facts::{Facts, Scope, Shape, namespace_shown};
pub use frame::{Expression, Frame, OUT_OF_BUDGET, Stop, Variable};
