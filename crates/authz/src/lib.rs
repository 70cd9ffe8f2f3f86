//! May they: the ordered chain of authorizers.
//!
//! A [`Chain`] takes a caller and what it asks for ([`Attributes`]) and answers allow, deny or no opinion. The first allow or
//! deny of a step ends it; `system:masters` is allowed before the first. Only the chain makes a [`Permit`], and a handler
//! wants one: what has not been authorized does not compile.
//!
//! Reviews ask the same chain about somebody else ([`Chain::decide`]) and get an [`Answer`], never a permit.
//!
//! No I/O and no clock in here: stored roles arrive as objects, and webhooks are sent, and told the time, by [`webhook::Sender`].

pub mod abac;
mod assemble;
mod attributes;
mod chain;
mod conditions;
pub mod config;
mod decision;
mod forbidden;
mod impersonate;
pub mod kubeconfig;
pub mod node;
mod observe;
pub mod rbac;
pub mod review;
pub mod webhook;

pub use assemble::{MakeSender, Standing, assemble};
pub use attributes::{Attributes, Operator, Requirement, Selector};
pub use chain::{Authorizer, Chain, DuplicateName, Step};
pub use conditions::{CompileError, Compiler, Condition, Conditions, Match, Request, ReviewCompiler};
pub use decision::{Answer, Decision, Permit, Reason, Refusal};
pub use forbidden::forbidden;
pub use impersonate::impersonate;
pub use observe::{Evaluation, Observer, Unobserved};

#[cfg(test)]
mod tests;
