//! Compiles the expressions of webhooks and policies, each in the environment in which it will run, and reports their errors.

use std::collections::HashSet;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::validation::fields::{At, Read, Report};
use value::Value;

use crate::expressions::{Age, CompileError, Compiler, OptionalVariables, Returns};

/// Expressions that are already stored; they may use features that new ones may not.
#[derive(Debug, Default)]
pub(super) struct StoredExpressions<'a> {
    conditions: HashSet<&'a str>,
    validations: HashSet<&'a str>,
    messages: HashSet<&'a str>,
    annotations: HashSet<&'a str>,
    mutations: HashSet<&'a str>,
}

impl<'a> StoredExpressions<'a> {
    pub(super) fn of_policy(old: &'a Value) -> Self {
        let spec = old.part("spec");
        let texts = |list: &str, field: &str| {
            let items: &'a [Value] = spec.items(list);
            items.iter().map(|item| item.text(field)).collect::<HashSet<&'a str>>()
        };
        let mutations: &'a [Value] = spec.items("mutations");
        StoredExpressions {
            conditions: texts("matchConditions", "expression"),
            validations: texts("validations", "expression"),
            messages: texts("validations", "messageExpression"),
            annotations: texts("auditAnnotations", "valueExpression"),
            // As in kube-apiserver, JSON patches are looked up among the apply configurations.
            mutations: mutations.iter().map(|m| m.part("applyConfiguration").text("expression")).collect(),
        }
    }

    pub(super) fn of_webhooks(old: &'a Value) -> Self {
        let hooks: &'a [Value] = old.items("webhooks");
        let conditions = hooks.iter().flat_map(|hook| hook.items("matchConditions"));
        StoredExpressions {
            conditions: conditions.map(|c| c.text("expression")).collect(),
            ..StoredExpressions::default()
        }
    }
}

/// Compiles the expressions of one policy or webhook, in the order in which they are written.
#[derive(Debug)]
pub(super) struct Expressions<'a> {
    compiler: Compiler,
    params: bool,
    known: &'a StoredExpressions<'a>,
}

impl<'a> Expressions<'a> {
    /// A validating policy without variables does not declare `variables`.
    pub(super) fn of_policy(policy: &Value, is_mutating: bool, known: &'a StoredExpressions<'a>) -> Self {
        let spec = policy.part("spec");
        let composed = is_mutating || !spec.items("variables").is_empty();
        let compiler = if composed { Compiler::composed() } else { Compiler::PLAIN };
        Expressions { compiler, params: spec.part("paramKind").is_some(), known }
    }

    pub(super) fn of_webhook(known: &'a StoredExpressions<'a>) -> Self {
        Expressions { compiler: Compiler::PLAIN, params: false, known }
    }

    /// Checks a match condition, which cannot use the variables of its policy.
    pub(super) fn condition(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.conditions, expression);
        let outcome = Compiler::PLAIN.compile(expression, self.optional_variables(true), Returns::Bool, age);
        report(outcome.err(), expression, at, errors);
    }

    /// Checks a variable and declares it for later expressions.
    pub(super) fn variable(&self, name: &str, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.validations, expression);
        report(
            self.compiler.variable(name, expression, self.optional_variables(true), age).err(),
            expression,
            at,
            errors,
        );
    }

    pub(super) fn validation(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.validations, expression);
        let outcome = self.compiler.compile(expression, self.optional_variables(true), Returns::Bool, age);
        report(outcome.err(), expression, at, errors);
    }

    /// Checks a message expression, which cannot use `authorizer`.
    pub(super) fn message(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.messages, expression);
        let outcome = self.compiler.compile(expression, self.optional_variables(false), Returns::String, age);
        report(outcome.err(), expression, at, errors);
    }

    pub(super) fn annotation(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.annotations, expression);
        let outcome = self.compiler.compile(
            expression.trim(),
            self.optional_variables(true),
            Returns::StringOrNull,
            age,
        );
        report(outcome.err(), expression, at, errors);
    }

    /// Checks a mutation of type `ApplyConfiguration` or `JSONPatch`.
    pub(super) fn mutation(&self, patch_type: &str, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let returns = if patch_type == "JSONPatch" { Returns::Patches } else { Returns::Object };
        let age = age(&self.known.mutations, expression);
        let optional = OptionalVariables { patches: true, ..self.optional_variables(true) };
        let expression = expression.trim();
        report(self.compiler.compile(expression, optional, returns, age).err(), expression, at, errors);
    }

    fn optional_variables(&self, authorizer: bool) -> OptionalVariables {
        OptionalVariables { params: self.params, authorizer, patches: false }
    }
}

fn age(known: &HashSet<&str>, expression: &str) -> Age {
    if known.contains(expression) { Age::Stored } else { Age::New }
}

fn report(error: Option<CompileError>, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
    match error {
        None => {}
        Some(CompileError::Invalid(detail)) => errors.invalid(at, expression, detail),
        Some(CompileError::Internal(detail)) => errors.report(FieldErrorKind::Internal, at, None, detail),
    }
}
