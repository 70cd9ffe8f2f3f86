//! Running the expressions of webhooks and policies.
//!
//! [`Facts`] are what expressions see of a request; [`Scope`] makes CEL's variables of them, once for all policies. [`Frame`] adds
//! the variables of one policy, each computed when it is first read. Evaluation never waits: a question to the authorizer that has
//! no answer yet ends it with [`Pause::Check`]; [`Checks`] gets the answer and whoever asked evaluates again. [`Pace`] sees to it that
//! others can run between evaluations, and a request whose time is up is refused.

mod checks;
mod facts;
mod frame;
mod pace;

pub use checks::Checks;
pub use facts::{Facts, Scope, Shape, namespace_shown};
pub use frame::{Expression, Frame, OUT_OF_BUDGET, Pause, Stop, Variable, Variables};
pub use pace::{Pace, give_way, take_rested};
