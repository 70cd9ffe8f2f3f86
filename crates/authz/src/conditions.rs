//! Match conditions: CEL expressions over a SubjectAccessReview that decide whether a webhook is called.
//!
//! A [`ConditionCompiler`] compiles the expressions once ([`ReviewCompiler`] outside of tests); this module defines
//! their input and combines their results.

mod review_type;

use std::fmt;
use std::sync::Arc;

use api::field::aggregate;
use authn::User;
use value::{Map, Value};

pub use review_type::ReviewCompiler;

use crate::attributes::{AuthorizationAttributes, SelectorAttributes};

/// Compiles expressions over the variable `request`, whose type is the `spec` of a SubjectAccessReview.
pub trait ConditionCompiler {
    /// Compiles an expression that must return a bool.
    fn compile(&self, expression: &str) -> Result<Arc<dyn AuthorizerMatchCondition>, ConditionCompileError>;
}

pub trait AuthorizerMatchCondition: Send + Sync {
    /// The error is a message.
    fn evaluate(&self, request: &ConditionInput<'_>) -> Result<bool, String>;

    /// The source text of the expression.
    fn expression(&self) -> &str;
}

#[derive(Clone, Copy, Debug)]
pub struct ConditionInput<'a> {
    pub user: &'a User,
    pub attributes: &'a AuthorizationAttributes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionCompileError {
    /// The expression is invalid. The message is the compiler's: `compilation failed: ERROR: …` or `must
    /// evaluate to bool but got …`.
    Invalid(String),
    /// A failure that the expression did not cause.
    Internal(String),
}

/// All match conditions of one webhook.
#[derive(Clone, Default)]
pub struct Conditions {
    conditions: Vec<Arc<dyn AuthorizerMatchCondition>>,
}

impl Conditions {
    pub fn new(conditions: Vec<Arc<dyn AuthorizerMatchCondition>>) -> Self {
        Conditions { conditions }
    }

    /// Without conditions the webhook is called for every request.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    pub fn evaluate(&self, user: &User, attributes: &AuthorizationAttributes) -> ConditionsResult {
        let request = ConditionInput { user, attributes };
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.evaluate(&request) {
                Ok(true) => {}
                Ok(false) => return ConditionsResult::No { failed: !errors.is_empty() },
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {error}",
                    condition.expression()
                )),
            }
        }
        if errors.is_empty() { ConditionsResult::Yes } else { ConditionsResult::Failed(aggregate(errors)) }
    }

    /// The source texts of the conditions.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(|condition| condition.expression())
    }

    /// The source text and the result of each condition, for explanations.
    pub fn values(
        &self,
        user: &User,
        attributes: &AuthorizationAttributes,
    ) -> Vec<(&str, Result<bool, String>)> {
        let request = ConditionInput { user, attributes };
        self.conditions.iter().map(|c| (c.expression(), c.evaluate(&request))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionsResult {
    Yes,
    /// A condition is false. This counts even if others failed.
    No {
        /// Whether a condition before it failed.
        failed: bool,
    },
    /// No condition is false, but some failed.
    Failed(String),
}

/// Conditions are equal if their source texts are, in the same order.
impl PartialEq for Conditions {
    fn eq(&self, other: &Self) -> bool {
        self.expressions().eq(other.expressions())
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.expressions()).finish()
    }
}

/// A selector as in a SubjectAccessReview.
pub(crate) fn selector(selector: &SelectorAttributes) -> Value {
    let requirements = selector.requirements.iter().map(|requirement| {
        let mut out = Map::with_capacity(3);
        out.insert("key", requirement.key.clone());
        out.insert("operator", requirement.operator.as_str());
        if !requirement.values.is_empty() {
            out.insert("values", Value::list(requirement.values.iter().cloned()));
        }
        Value::Map(out)
    });
    Value::map([("requirements", Value::List(requirements.collect()))])
}
