//! Expressions of webhooks and policies: what is wrong with them, each in the environment in which it will run.

use std::collections::HashSet;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::validation::fields::{At, Read, Report};
use value::Value;

use crate::expressions::{Age, CompileError, Compiler, Offered, Returns};

/// The expressions that are stored already: they may keep using what a new one may not.
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    conditions: HashSet<&'a str>,
    validations: HashSet<&'a str>,
    messages: HashSet<&'a str>,
    annotations: HashSet<&'a str>,
    mutations: HashSet<&'a str>,
}

impl<'a> Known<'a> {
    /// Those of a policy.
    pub(super) fn of_policy(old: &'a Value) -> Self {
        let spec = old.part("spec");
        let texts = |list: &str, field: &str| {
            let items: &'a [Value] = spec.items(list);
            items.iter().map(|item| item.text(field)).collect::<HashSet<&'a str>>()
        };
        let mutations: &'a [Value] = spec.items("mutations");
        Known {
            conditions: texts("matchConditions", "expression"),
            validations: texts("validations", "expression"),
            messages: texts("validations", "messageExpression"),
            annotations: texts("auditAnnotations", "valueExpression"),
            // As Kubernetes has it: JSON patches are looked for among the apply configurations.
            mutations: mutations.iter().map(|m| m.part("applyConfiguration").text("expression")).collect(),
        }
    }

    /// Those of webhooks.
    pub(super) fn of_webhooks(old: &'a Value) -> Self {
        let hooks: &'a [Value] = old.items("webhooks");
        let conditions = hooks.iter().flat_map(|hook| hook.items("matchConditions"));
        Known { conditions: conditions.map(|c| c.text("expression")).collect(), ..Known::default() }
    }
}

/// Compiles the expressions of one policy or webhook, in the order in which they are written.
#[derive(Debug)]
pub(super) struct Expressions<'a> {
    compiler: Compiler,
    params: bool,
    known: &'a Known<'a>,
}

impl<'a> Expressions<'a> {
    /// Those of a policy. A validating one without variables does not know the word `variables`.
    pub(super) fn of_policy(policy: &Value, is_mutating: bool, known: &'a Known<'a>) -> Self {
        let spec = policy.part("spec");
        let composed = is_mutating || !spec.items("variables").is_empty();
        let compiler = if composed { Compiler::composed() } else { Compiler::PLAIN };
        Expressions { compiler, params: spec.part("paramKind").is_some(), known }
    }

    /// Those of a webhook.
    pub(super) fn of_webhook(known: &'a Known<'a>) -> Self {
        Expressions { compiler: Compiler::PLAIN, params: false, known }
    }

    /// A match condition; it does not know the variables of its policy.
    pub(super) fn condition(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.conditions, expression);
        let outcome = Compiler::PLAIN.compile(expression, self.offered(true), Returns::Bool, age);
        report(outcome.err(), expression, at, errors);
    }

    /// A variable.
    pub(super) fn variable(&self, name: &str, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.validations, expression);
        report(
            self.compiler.variable(name, expression, self.offered(true), age).err(),
            expression,
            at,
            errors,
        );
    }

    /// A validation.
    pub(super) fn validation(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.validations, expression);
        let outcome = self.compiler.compile(expression, self.offered(true), Returns::Bool, age);
        report(outcome.err(), expression, at, errors);
    }

    /// A message; it cannot ask who may do what.
    pub(super) fn message(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.messages, expression);
        let outcome = self.compiler.compile(expression, self.offered(false), Returns::String, age);
        report(outcome.err(), expression, at, errors);
    }

    /// The value of an audit annotation.
    pub(super) fn annotation(&self, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let age = age(&self.known.annotations, expression);
        let outcome =
            self.compiler.compile(expression.trim(), self.offered(true), Returns::StringOrNull, age);
        report(outcome.err(), expression, at, errors);
    }

    /// A mutation.
    pub(super) fn mutation(&self, patch_type: &str, expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
        let returns = if patch_type == "JSONPatch" { Returns::Patches } else { Returns::Object };
        let age = age(&self.known.mutations, expression);
        let offered = Offered { patches: true, ..self.offered(true) };
        let expression = expression.trim();
        report(self.compiler.compile(expression, offered, returns, age).err(), expression, at, errors);
    }

    fn offered(&self, authorizer: bool) -> Offered {
        Offered { params: self.params, authorizer, patches: false }
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
