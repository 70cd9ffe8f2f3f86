//! A stored policy to what runs.

use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use kinds::expressions::{Compiler, Offered, Returns};
use value::{Str, Value};

use crate::account::{Account, FREE, together};
use crate::expression::{Expression, Variable, Variables};
use crate::matching::{Conditions, Criteria};

/// What both kinds of policies have.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: Str,
    /// Whether a failure to evaluate refuses the request (`failurePolicy: Fail`).
    pub fails_closed: bool,
    /// What operators may know of it.
    pub account: Arc<Account>,
    pub(super) criteria: Result<Criteria, String>,
    pub(super) params: Option<GroupVersionKind>,
    pub(super) conditions: Option<Conditions>,
    pub(super) variables: Variables,
}

/// A `ValidatingAdmissionPolicy`, compiled.
#[derive(Clone, Debug)]
pub struct ValidatingPolicy {
    /// What both kinds have.
    pub policy: Policy,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<Annotation>,
    /// Whether it has messages to compute, or annotations: then even a request that passes is not done with its validations.
    pub(super) says_more: bool,
}

/// One validation.
#[derive(Clone, Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: Str,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: Str,
}

/// One audit annotation.
#[derive(Clone, Debug)]
pub(super) struct Annotation {
    pub(super) key: Str,
    pub(super) value: Expression,
}

/// A `MutatingAdmissionPolicy`, compiled.
#[derive(Clone, Debug)]
pub struct MutatingPolicy {
    /// What both kinds have.
    pub policy: Policy,
    pub(super) mutations: Vec<Mutation>,
    /// Whether it wants to run again when something after it changes the object.
    pub(super) reinvoked: bool,
}

/// One mutation.
#[derive(Clone, Debug)]
pub(super) enum Mutation {
    /// `ApplyConfiguration`.
    Apply(Expression),
    /// `JSONPatch`.
    Json(Expression),
}

/// The fields of a policy's `spec` that say what it is about.
const MATCHING: &[&str] = &["matchConstraints", "matchConditions"];

/// Reads what both kinds have. The compiler knows the policy's variables afterwards.
fn read(object: &Value, compiler: &Compiler) -> Policy {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let present = |field: &str| spec.get(field).filter(|value| !value.is_null());
    let params = present("paramKind").map(|kind| {
        let version = kind.str_at(&["apiVersion"]).unwrap_or_default();
        let version = GroupVersion::parse(version).unwrap_or_else(|_| GroupVersion::new("", version));
        version.kind(kind.str_at(&["kind"]).unwrap_or_default())
    });
    let offered = Offered { params: params.is_some(), authorizer: true, patches: false };
    let variables = spec.list_at(&["variables"]).iter().map(|variable| {
        let text = |field: &str| variable.str_at(&[field]).unwrap_or_default();
        Variable::compile(text("name"), text("expression"), compiler, offered)
    });
    let variables = variables.collect();
    let fails_closed = spec.str_at(&["failurePolicy"]) != Some("Ignore");
    Policy {
        name: api::meta::name(object).into(),
        fails_closed,
        criteria: match present("matchConstraints") {
            Some(constraints) => Criteria::of_policy(constraints),
            None => Err("policy contained no match constraints, a required field".to_owned()),
        },
        conditions: Conditions::of_policy(spec, compiler, params.is_some(), fails_closed),
        params,
        variables,
        account: Arc::new(Account::new(object, spec, MATCHING, FREE)),
    }
}

impl Policy {
    /// Notes what the expressions may cost, which is known once all of them are compiled.
    fn costing<'e>(mut self, own: impl IntoIterator<Item = &'e Expression>) -> Self {
        let shared = self.variables.estimates().chain(self.conditions.iter().flat_map(Conditions::estimates));
        let estimate = together(shared.chain(own.into_iter().map(Expression::estimate)));
        if let Some(account) = Arc::get_mut(&mut self.account) {
            account.estimate = estimate;
        }
        self
    }

    fn offered(&self) -> Offered {
        Offered { params: self.params.is_some(), authorizer: true, patches: false }
    }
}

impl ValidatingPolicy {
    /// Compiles a stored policy. What does not compile fails when it is evaluated.
    pub fn compile(object: &Value) -> Self {
        let compiler = Compiler::composed();
        let policy = read(object, &compiler);
        let offered = policy.offered();
        let validations = object.list_at(&["spec", "validations"]).iter().map(|validation| {
            let text = |field: &str| validation.str_at(&[field]).unwrap_or_default();
            let unasked = Offered { authorizer: false, ..offered };
            let message = text("messageExpression");
            Validation {
                expression: Expression::compile(text("expression"), &compiler, offered, Returns::Bool),
                message: text("message").trim().into(),
                message_expression: (!message.is_empty())
                    .then(|| Expression::compile(message, &compiler, unasked, Returns::String)),
                reason: text("reason").into(),
            }
        });
        let annotations = object.list_at(&["spec", "auditAnnotations"]).iter().map(|annotation| {
            let text = |field: &str| annotation.str_at(&[field]).unwrap_or_default();
            let value = text("valueExpression");
            Annotation {
                key: text("key").into(),
                value: Expression::compile(value, &compiler, offered, Returns::StringOrNull),
            }
        });
        let validations: Vec<Validation> = validations.collect();
        let annotations: Vec<Annotation> = annotations.collect();
        let says_more = !annotations.is_empty()
            || validations.iter().any(|validation| validation.message_expression.is_some());
        let own = validations
            .iter()
            .flat_map(|v| std::iter::once(&v.expression).chain(&v.message_expression))
            .chain(annotations.iter().map(|annotation| &annotation.value));
        let policy = policy.costing(own);
        ValidatingPolicy { policy, validations, annotations, says_more }
    }
}

impl MutatingPolicy {
    /// Compiles a stored policy. What does not compile fails when it is evaluated.
    pub fn compile(object: &Value) -> Self {
        let compiler = Compiler::composed();
        let policy = read(object, &compiler);
        let offered = Offered { patches: true, ..policy.offered() };
        let mutations = object.list_at(&["spec", "mutations"]).iter().filter_map(|mutation| {
            let text = |field: &str| mutation.str_at(&[field, "expression"]);
            match mutation.str_at(&["patchType"])? {
                "JSONPatch" => text("jsonPatch").map(|text| {
                    Mutation::Json(Expression::compile(text, &compiler, offered, Returns::Patches))
                }),
                "ApplyConfiguration" => text("applyConfiguration").map(|text| {
                    Mutation::Apply(Expression::compile(text, &compiler, offered, Returns::Object))
                }),
                _ => None,
            }
        });
        let mutations: Vec<Mutation> = mutations.collect();
        let policy = policy.costing(mutations.iter().map(|mutation| match mutation {
            Mutation::Apply(expression) | Mutation::Json(expression) => expression,
        }));
        let reinvoked = object.str_at(&["spec", "reinvocationPolicy"]) == Some("IfNeeded");
        MutatingPolicy { policy, mutations, reinvoked }
    }
}
