//! Match conditions: CEL expressions over a review that say whether a webhook is to be asked.
//!
//! Expressions are compiled by a [`Compiler`], once ([`ReviewCompiler`] outside of tests); this module knows what they are about
//! and how their values combine.

mod review_type;

use std::fmt;
use std::sync::Arc;

use api::field::aggregate;
use authn::User;
use value::{Map, Str, Value};

pub use review_type::ReviewCompiler;

use crate::attributes::{Attributes, Selector};

/// Compiles expressions over the variable `request`, which has the type of a SubjectAccessReview's `spec`.
pub trait Compiler {
    /// Compiles an expression whose value is a bool.
    fn compile(&self, expression: &str) -> Result<Arc<dyn Condition>, CompileError>;
}

/// A compiled expression.
pub trait Condition: Send + Sync {
    /// The value for a review, or why there is none.
    fn evaluate(&self, request: &Value) -> Result<bool, String>;

    /// The expression as it was written.
    fn expression(&self) -> &str;

    /// Whether it looks at a field or label selector; if none does they are not put together.
    fn uses_selectors(&self) -> bool {
        true
    }
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
    uses_selectors: bool,
}

impl Conditions {
    /// These conditions.
    pub fn new(conditions: Vec<Arc<dyn Condition>>) -> Self {
        let uses_selectors = conditions.iter().any(|condition| condition.uses_selectors());
        Conditions { conditions, uses_selectors }
    }

    /// Whether a request is to be asked about: any false says no, whatever else fails; otherwise any error is an error.
    pub fn evaluate(&self, user: &User, attributes: &Attributes) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let request = request(user, attributes, self.uses_selectors);
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.evaluate(&request) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {error}",
                    condition.expression()
                )),
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(aggregate(errors)) }
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.conditions.iter().map(|c| c.expression())).finish()
    }
}

/// What expressions see as `request`: every field of a review, also the empty ones, but selectors only where there are some.
pub fn request(user: &User, attributes: &Attributes, with_selectors: bool) -> Value {
    let strings = |list: &[Str]| Value::List(list.iter().cloned().map(Value::String).collect());
    let mut out = Map::with_capacity(5);
    out.insert("extra", Value::Map(user.extra.iter().map(|(k, v)| (k.clone(), strings(v))).collect()));
    out.insert("groups", strings(&user.groups));
    if attributes.is_resource {
        let mut resource = Map::with_capacity(9);
        if with_selectors && !attributes.fields.requirements.is_empty() {
            resource.insert("fieldSelector", selector(&attributes.fields));
        }
        resource.insert("group", attributes.group.clone());
        if with_selectors && !attributes.labels.requirements.is_empty() {
            resource.insert("labelSelector", selector(&attributes.labels));
        }
        resource.insert("name", attributes.name.clone());
        resource.insert("namespace", attributes.namespace.clone());
        resource.insert("resource", attributes.resource.clone());
        resource.insert("subresource", attributes.subresource.clone());
        resource.insert("verb", attributes.verb.clone());
        resource.insert("version", attributes.version.clone());
        out.insert("resourceAttributes", resource);
    } else {
        let path = [("path", attributes.path.clone()), ("verb", attributes.verb.clone())];
        out.insert("nonResourceAttributes", Value::map(path));
    }
    out.insert("uid", user.uid.clone());
    out.insert("user", user.name.clone());
    Value::Map(out)
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
