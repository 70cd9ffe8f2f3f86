//! Match conditions: CEL expressions over a review that say whether a webhook is to be asked.
//!
//! Expressions are compiled by a [`Compiler`], once ([`ReviewCompiler`] outside of tests); this module knows what they are about
//! and how their values combine.

mod review_type;

use std::fmt;
use std::sync::Arc;

use api::field::aggregate;
use authn::User;
use value::{Map, Value};

pub use review_type::ReviewCompiler;

use crate::attributes::{Attributes, Selector};

/// Compiles expressions over the variable `request`, which has the type of a SubjectAccessReview's `spec`.
pub trait Compiler {
    /// Compiles an expression whose value is a bool.
    fn compile(&self, expression: &str) -> Result<Arc<dyn Condition>, CompileError>;
}

/// A compiled expression.
pub trait Condition: Send + Sync {
    /// The value for a request, or why there is none.
    fn evaluate(&self, request: &Request<'_>) -> Result<bool, String>;

    /// The expression as it was written.
    fn expression(&self) -> &str;
}

/// What conditions are about: who asks, and what.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who.
    pub user: &'a User,
    /// What.
    pub attributes: &'a Attributes,
}

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It is wrong, with the compiler's words: `compilation failed: ERROR: …` or `must evaluate to bool but got …`.
    Invalid(String),
    /// Not its author's fault.
    Internal(String),
}

/// All conditions of one webhook.
#[derive(Clone, Default)]
pub struct Conditions {
    conditions: Vec<Arc<dyn Condition>>,
}

impl Conditions {
    /// These conditions.
    pub fn new(conditions: Vec<Arc<dyn Condition>>) -> Self {
        Conditions { conditions }
    }

    /// Whether there are none, so that every request is asked about.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether a request is to be asked about.
    pub fn evaluate(&self, user: &User, attributes: &Attributes) -> Match {
        let request = Request { user, attributes };
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.evaluate(&request) {
                Ok(true) => {}
                Ok(false) => return Match::No { failed: !errors.is_empty() },
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {error}",
                    condition.expression()
                )),
            }
        }
        if errors.is_empty() { Match::Yes } else { Match::Failed(aggregate(errors)) }
    }

    /// Every condition as it is written.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(|condition| condition.expression())
    }

    /// Every condition as it is written and its value for a request, for whoever wants to know why.
    pub fn values(&self, user: &User, attributes: &Attributes) -> Vec<(&str, Result<bool, String>)> {
        let request = Request { user, attributes };
        self.conditions.iter().map(|c| (c.expression(), c.evaluate(&request))).collect()
    }
}

/// What the conditions of a webhook say about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// All are true.
    Yes,
    /// One is false, which counts whatever else failed.
    No {
        /// Whether an earlier one failed.
        failed: bool,
    },
    /// None is false and some failed.
    Failed(String),
}

/// The same expressions in the same order.
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

/// A selector as a review shows it.
pub(crate) fn selector(selector: &Selector) -> Value {
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
