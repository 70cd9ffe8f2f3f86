//! Compiles policies when they change.

use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use kinds::expressions::{Compiler, OptionalVariables, Returns};
use value::{Str, Value};

use crate::expression::{Expression, PolicyVariable, PolicyVariables};
use crate::inventory::{InventoryEntry, ZERO_COST, sum_estimates};
use crate::matching::{MatchConditions, MatchCriteria};

/// The parts that validating and mutating policies have in common.
#[derive(Clone, Debug)]
pub struct CompiledPolicy {
    pub name: Str,
    /// Whether an evaluation error rejects the request (`failurePolicy: Fail`).
    pub fails_closed: bool,
    pub inventory: Arc<InventoryEntry>,
    pub(super) criteria: Result<MatchCriteria, String>,
    pub(super) params: Option<GroupVersionKind>,
    pub(super) conditions: Option<MatchConditions>,
    pub(super) variables: PolicyVariables,
}

/// A `ValidatingAdmissionPolicy` with compiled expressions.
#[derive(Clone, Debug)]
pub struct ValidatingPolicy {
    pub policy: CompiledPolicy,
    pub(super) validations: Vec<PolicyValidation>,
    pub(super) annotations: Vec<AnnotationExpression>,
    /// Whether it has message expressions or audit annotations, which are evaluated even if all validations
    /// pass.
    pub(super) has_computed_output: bool,
}

#[derive(Clone, Debug)]
pub(super) struct PolicyValidation {
    pub(super) expression: Expression,
    pub(super) message: Str,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: Str,
}

#[derive(Clone, Debug)]
pub(super) struct AnnotationExpression {
    pub(super) key: Str,
    pub(super) value: Expression,
}

#[derive(Clone, Debug)]
pub struct MutatingPolicy {
    pub policy: CompiledPolicy,
    pub(super) mutations: Vec<PolicyMutation>,
    /// Whether the policy has `reinvocationPolicy: IfNeeded`.
    pub(super) reinvoke_if_needed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum PolicyMutation {
    Apply(Expression),
    Json(Expression),
}

/// The fields of a policy's `spec` that select requests.
const MATCHING: &[&str] = &["matchConstraints", "matchConditions"];

/// Compiles the common parts and declares the policy's variables to `compiler`.
fn compile_common(object: &Value, compiler: &Compiler) -> CompiledPolicy {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let present = |field: &str| spec.get(field).filter(|value| !value.is_null());
    let params = present("paramKind").map(|kind| {
        let version = kind.str_at(&["apiVersion"]).unwrap_or_default();
        let version = GroupVersion::parse(version).unwrap_or_else(|_| GroupVersion::new("", version));
        version.kind(kind.str_at(&["kind"]).unwrap_or_default())
    });
    let offered = OptionalVariables { params: params.is_some(), authorizer: true, patches: false };
    let variables = spec.list_at(&["variables"]).iter().map(|variable| {
        let text = |field: &str| variable.str_at(&[field]).unwrap_or_default();
        PolicyVariable::compile(text("name"), text("expression"), compiler, offered)
    });
    let variables = variables.collect();
    let fails_closed = spec.str_at(&["failurePolicy"]) != Some("Ignore");
    CompiledPolicy {
        name: api::meta::name(object).into(),
        fails_closed,
        criteria: match present("matchConstraints") {
            Some(constraints) => MatchCriteria::of_policy(constraints),
            None => Err("policy contained no match constraints, a required field".to_owned()),
        },
        conditions: MatchConditions::of_policy(spec, compiler, params.is_some(), fails_closed),
        params,
        variables,
        inventory: Arc::new(InventoryEntry::new(object, spec, MATCHING, ZERO_COST)),
    }
}

impl CompiledPolicy {
    /// Sets the cost estimate, which is known after all expressions are compiled. `own` are the expressions
    /// that only this type of policy has.
    fn with_estimate<'e>(mut self, own: impl IntoIterator<Item = &'e Expression>) -> Self {
        let shared =
            self.variables.estimates().chain(self.conditions.iter().flat_map(MatchConditions::estimates));
        let estimate = sum_estimates(shared.chain(own.into_iter().map(Expression::estimate)));
        if let Some(inventory) = Arc::get_mut(&mut self.inventory) {
            inventory.estimate = estimate;
        }
        self
    }

    fn offered(&self) -> OptionalVariables {
        OptionalVariables { params: self.params.is_some(), authorizer: true, patches: false }
    }
}

impl ValidatingPolicy {
    /// Expressions that do not compile fail when they are evaluated.
    pub fn compile(object: &Value) -> Self {
        let compiler = Compiler::composed();
        let policy = compile_common(object, &compiler);
        let offered = policy.offered();
        let validations = object.list_at(&["spec", "validations"]).iter().map(|validation| {
            let text = |field: &str| validation.str_at(&[field]).unwrap_or_default();
            let without_authorizer = OptionalVariables { authorizer: false, ..offered };
            let message = text("messageExpression");
            PolicyValidation {
                expression: Expression::compile(text("expression"), &compiler, offered, Returns::Bool),
                message: text("message").trim().into(),
                message_expression: (!message.is_empty())
                    .then(|| Expression::compile(message, &compiler, without_authorizer, Returns::String)),
                reason: text("reason").into(),
            }
        });
        let annotations = object.list_at(&["spec", "auditAnnotations"]).iter().map(|annotation| {
            let text = |field: &str| annotation.str_at(&[field]).unwrap_or_default();
            let value = text("valueExpression");
            AnnotationExpression {
                key: text("key").into(),
                value: Expression::compile(value, &compiler, offered, Returns::StringOrNull),
            }
        });
        let validations: Vec<PolicyValidation> = validations.collect();
        let annotations: Vec<AnnotationExpression> = annotations.collect();
        let has_computed_output = !annotations.is_empty()
            || validations.iter().any(|validation| validation.message_expression.is_some());
        let own = validations
            .iter()
            .flat_map(|v| std::iter::once(&v.expression).chain(&v.message_expression))
            .chain(annotations.iter().map(|annotation| &annotation.value));
        let policy = policy.with_estimate(own);
        ValidatingPolicy { policy, validations, annotations, has_computed_output }
    }
}

impl MutatingPolicy {
    /// Expressions that do not compile fail when they are evaluated.
    pub fn compile(object: &Value) -> Self {
        let compiler = Compiler::composed();
        let policy = compile_common(object, &compiler);
        let offered = OptionalVariables { patches: true, ..policy.offered() };
        let mutations = object.list_at(&["spec", "mutations"]).iter().filter_map(|mutation| {
            let text = |field: &str| mutation.str_at(&[field, "expression"]);
            match mutation.str_at(&["patchType"])? {
                "JSONPatch" => text("jsonPatch").map(|text| {
                    PolicyMutation::Json(Expression::compile(text, &compiler, offered, Returns::Patches))
                }),
                "ApplyConfiguration" => text("applyConfiguration").map(|text| {
                    PolicyMutation::Apply(Expression::compile(text, &compiler, offered, Returns::Object))
                }),
                _ => None,
            }
        });
        let mutations: Vec<PolicyMutation> = mutations.collect();
        let policy = policy.with_estimate(mutations.iter().map(|mutation| match mutation {
            PolicyMutation::Apply(expression) | PolicyMutation::Json(expression) => expression,
        }));
        let reinvoke_if_needed = object.str_at(&["spec", "reinvocationPolicy"]) == Some("IfNeeded");
        MutatingPolicy { policy, mutations, reinvoke_if_needed }
    }
}
