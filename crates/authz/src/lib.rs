//! Authorization: an ordered chain of authorizers decides whether a user may perform a request.
//!
//! [`AuthorizerChain`] takes a caller and the request's [`AuthorizationAttributes`]. The first authorizer that allows or denies
//! decides; `system:masters` is allowed before the first. Only [`AuthorizerChain::authorize`] creates a [`Permit`],
//! which every handler requires, so code that skips authorization does not compile. Reviews ask about other
//! users with [`AuthorizerChain::decide`] and get an [`AuthorizerDecision`].
//!
//! This crate does no I/O and reads no clock: stored roles arrive as objects, and [`webhook::ReviewTransport`]
//! sends webhook calls and provides the time.

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

pub use assemble::{MakeSender, SharedAuthorizers, assemble};
pub use attributes::{AuthorizationAttributes, Requirement, SelectorAttributes, SelectorOperator};
pub use chain::{Authorizer, AuthorizerChain, ChainStep, DuplicateName};
pub use conditions::{
    AuthorizerMatchCondition, ConditionCompileError, ConditionCompiler, ConditionInput, Conditions,
    ConditionsResult, ReviewCompiler,
};
pub use decision::{AuthorizerDecision, Decision, DecisionReason, Denial, Permit};
pub use forbidden::forbidden;
pub use impersonate::impersonate;
pub use observe::{AuthorizationObserver, NoObserver, WebhookEvaluation};

#[cfg(test)]
mod tests;
