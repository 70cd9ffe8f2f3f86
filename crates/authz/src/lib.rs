//! Authorization: an ordered chain of authorizers decides whether a user may perform a request.
//!
//! [`AuthorizerChain`] takes a caller and the request's [`AuthorizationAttributes`]. The first authorizer that allows or denies
//! decides; `system:masters` is allowed before the first. Only [`AuthorizerChain::authorize`] creates a [`Permit`],
//! which every handler requires, so code that skips authorization does not compile. Reviews ask about other
//! users with [`AuthorizerChain::decide`] and get an [`AuthorizerDecision`].
//!
//! This crate does no I/O and reads no clock: stored roles arrive as objects, and [`webhook::ReviewTransport`]
//! sends webhook calls and provides the time.
//!
//! ```
//! use std::sync::Arc;
//!
//! use authn::User;
//! use authz::rbac::RbacIndex;
//! use authz::{AuthorizationAttributes, Authorizer, AuthorizerChain, ChainStep, Decision};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let rbac = Authorizer::Rbac(Arc::new(RbacIndex::default()));
//! let chain = AuthorizerChain::new(vec![ChainStep { name: "rbac".into(), authorizer: rbac }])?;
//! let delete_pod = AuthorizationAttributes::resource("delete", "", "pods").in_namespace("default").named("web");
//! // There are no roles, so RBAC has no opinion, which denies. Members of system:masters are allowed everything.
//! let alice = User::named("alice");
//! assert_eq!(chain.decide(&alice, &delete_pod).await.decision, Decision::NoOpinion);
//! let admin = User::named("admin").in_groups(["system:masters"]);
//! assert_eq!(chain.decide(&admin, &delete_pod).await.decision, Decision::Allow);
//! # Ok::<(), authz::DuplicateName>(())
//! # }).unwrap();
//! ```

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
