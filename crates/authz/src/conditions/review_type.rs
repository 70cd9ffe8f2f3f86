//! The compiler of match conditions: CEL over the type of a SubjectAccessReview's `spec`.

use std::sync::Arc;

use cel::{Activation, Env, PER_CALL_LIMIT, Program, Type, TypeProvider, Val, Version};
use value::Value;

use crate::conditions::{CompileError, Compiler, Condition};

/// Compiles match conditions in Kubernetes' base environment.
#[derive(Clone, Debug)]
pub struct ReviewCompiler {
    env: Env,
}

impl ReviewCompiler {
    /// A compiler for the environment of a version of Kubernetes.
    pub fn new(version: Version) -> Self {
        let env = Env::kubernetes(version)
            .with_types(Arc::new(ReviewTypes))
            .with_variables([("request", Type::Struct(SPEC.into()))]);
        ReviewCompiler { env }
    }
}

impl Default for ReviewCompiler {
    fn default() -> Self {
        ReviewCompiler::new(Version::CURRENT)
    }
}

impl Compiler for ReviewCompiler {
    fn compile(&self, expression: &str) -> Result<Arc<dyn Condition>, CompileError> {
        let checked = self
            .env
            .compile(expression)
            .map_err(|issues| CompileError::Invalid(format!("compilation failed: {issues}")))?;
        let output = checked.output_type();
        if *output != Type::Bool {
            let message = format!("must evaluate to bool but got {}", output.in_messages());
            return Err(CompileError::Invalid(message));
        }
        let program = checked
            .program()
            .map_err(|error| CompileError::Internal(format!("program instantiation failed: {error}")))?;
        Ok(Arc::new(CelCondition {
            env: self.env.clone(),
            program,
            expression: expression.to_owned(),
            // A text that does not hold the words cannot select the fields.
            uses_selectors: ["fieldSelector", "labelSelector"].iter().any(|word| expression.contains(word)),
        }))
    }
}

struct CelCondition {
    env: Env,
    program: Program,
    expression: String,
    uses_selectors: bool,
}

impl Condition for CelCondition {
    fn evaluate(&self, request: &Value) -> Result<bool, String> {
        let activation = Activation::new(&self.env).with("request", Val::data(request));
        let outcome = self.program.run(&activation, PER_CALL_LIMIT).outcome;
        let value = outcome.map_err(|error| error.to_string())?;
        value.as_bool().ok_or_else(|| "the value is not a bool".to_owned())
    }

    fn expression(&self) -> &str {
        &self.expression
    }

    fn uses_selectors(&self) -> bool {
        self.uses_selectors
    }
}

const SPEC: &str = "kubernetes.SubjectAccessReviewSpec";
const RESOURCE: &str = "kubernetes.ResourceAttributes";
const NON_RESOURCE: &str = "kubernetes.NonResourceAttributes";
const FIELD_SELECTOR: &str = "kubernetes.FieldSelectorAttributes";
const LABEL_SELECTOR: &str = "kubernetes.LabelSelectorAttributes";
const REQUIREMENT: &str = "kubernetes.SelectorRequirement";

/// The types of a review.
#[derive(Debug)]
struct ReviewTypes;

impl TypeProvider for ReviewTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        [SPEC, RESOURCE, NON_RESOURCE, FIELD_SELECTOR, LABEL_SELECTOR, REQUIREMENT]
            .contains(&name)
            .then(|| Type::Struct(name.into()))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let strings = || Type::list(Type::String);
        let object = |name: &str| Type::Struct(name.into());
        Some(match (type_name, field) {
            (SPEC, "user" | "uid")
            | (RESOURCE, "namespace" | "verb" | "group" | "version" | "resource" | "subresource" | "name")
            | (NON_RESOURCE, "path" | "verb")
            | (FIELD_SELECTOR | LABEL_SELECTOR, "rawSelector")
            | (REQUIREMENT, "key" | "operator") => Type::String,
            (SPEC, "groups") | (REQUIREMENT, "values") => strings(),
            (SPEC, "extra") => Type::map(Type::String, strings()),
            (SPEC, "resourceAttributes") => object(RESOURCE),
            (SPEC, "nonResourceAttributes") => object(NON_RESOURCE),
            (RESOURCE, "fieldSelector") => object(FIELD_SELECTOR),
            (RESOURCE, "labelSelector") => object(LABEL_SELECTOR),
            (FIELD_SELECTOR | LABEL_SELECTOR, "requirements") => Type::list(object(REQUIREMENT)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
