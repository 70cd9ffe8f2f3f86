//! Compiles match conditions as CEL over the type of a SubjectAccessReview's `spec`.

use std::sync::{Arc, OnceLock};

use authn::User;
use cel::{
    Activation, Env, Error, LazyFields, MapVal, PER_CALL_LIMIT, Program, Type, TypeProvider, Val, Version,
};
use value::{Str, Value};

use crate::attributes::AuthorizationAttributes;
use crate::conditions::{
    AuthorizerMatchCondition, ConditionCompileError, ConditionCompiler, ConditionInput, selector,
};

/// Compiles in Kubernetes' base environment.
#[derive(Clone, Debug)]
pub struct ReviewCompiler {
    env: Env,
}

impl ReviewCompiler {
    /// A compiler for the CEL environment of a Kubernetes version.
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

impl ConditionCompiler for ReviewCompiler {
    fn compile(&self, expression: &str) -> Result<Arc<dyn AuthorizerMatchCondition>, ConditionCompileError> {
        let checked = self
            .env
            .compile(expression)
            .map_err(|issues| ConditionCompileError::Invalid(format!("compilation failed: {issues}")))?;
        let output = checked.output_type();
        if *output != Type::Bool {
            let got = if *output == Type::Null { "null_type".to_owned() } else { output.in_messages() };
            let message = format!("must evaluate to bool but got {got}");
            return Err(ConditionCompileError::Invalid(message));
        }
        let program = checked.program().map_err(|error| {
            ConditionCompileError::Internal(format!("program instantiation failed: {error}"))
        })?;
        Ok(Arc::new(CelCondition { env: self.env.clone(), program, expression: expression.to_owned() }))
    }
}

struct CelCondition {
    env: Env,
    program: Program,
    expression: String,
}

impl AuthorizerMatchCondition for CelCondition {
    fn evaluate(&self, request: &ConditionInput<'_>) -> Result<bool, String> {
        let spec = ReviewSpec::of(request);
        let activation = Activation::new(&self.env).with("request", Val::Map(MapVal::Lazy(&spec)));
        let outcome = self.program.run(&activation, PER_CALL_LIMIT).outcome;
        let value = outcome.map_err(|error| error.to_string())?;
        value.as_bool().ok_or_else(|| "the value is not a bool".to_owned())
    }

    fn expression(&self) -> &str {
        &self.expression
    }
}

/// A review's `spec` as expressions see it: every applicable field is present even if empty, but selectors
/// only if they are set. Values are built when they are read.
struct ReviewSpec<'a> {
    user: &'a User,
    extra: OnceLock<Value>,
    is_resource: bool,
    resource: ReviewResource<'a>,
    path: ReviewPath<'a>,
}

struct ReviewResource<'a> {
    attributes: &'a AuthorizationAttributes,
    fields: OnceLock<Value>,
    labels: OnceLock<Value>,
}

struct ReviewPath<'a>(&'a AuthorizationAttributes);

impl<'a> ReviewSpec<'a> {
    fn of(request: &ConditionInput<'a>) -> Self {
        let ConditionInput { user, attributes } = *request;
        let resource = ReviewResource { attributes, fields: OnceLock::new(), labels: OnceLock::new() };
        let path = ReviewPath(attributes);
        ReviewSpec { user, extra: OnceLock::new(), is_resource: attributes.is_resource, resource, path }
    }
}

impl LazyFields for ReviewSpec<'_> {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        let strings = |list: &[Str]| Value::List(list.iter().cloned().map(Value::String).collect());
        Some(Ok(match name {
            "user" => Val::str(&self.user.name),
            "uid" => Val::str(&self.user.uid),
            "groups" => Val::list(self.user.groups.iter().map(|group| Val::str(group)).collect()),
            "extra" => Val::data(self.extra.get_or_init(|| {
                Value::Map(
                    self.user.extra.iter().map(|(key, values)| (key.clone(), strings(values))).collect(),
                )
            })),
            "resourceAttributes" if self.is_resource => Val::Map(MapVal::Lazy(&self.resource)),
            "nonResourceAttributes" if !self.is_resource => Val::Map(MapVal::Lazy(&self.path)),
            _ => return None,
        }))
    }

    fn names(&self) -> Vec<&str> {
        let attributes = if self.is_resource { "resourceAttributes" } else { "nonResourceAttributes" };
        vec!["user", "groups", "uid", "extra", attributes]
    }
}

impl LazyFields for ReviewResource<'_> {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        let AuthorizationAttributes { fields, labels, .. } = self.attributes;
        Some(Ok(match name {
            "namespace" => Val::str(&self.attributes.namespace),
            "verb" => Val::str(&self.attributes.verb),
            "group" => Val::str(&self.attributes.group),
            "version" => Val::str(&self.attributes.version),
            "resource" => Val::str(&self.attributes.resource),
            "subresource" => Val::str(&self.attributes.subresource),
            "name" => Val::str(&self.attributes.name),
            "fieldSelector" if !fields.requirements.is_empty() => {
                Val::data(self.fields.get_or_init(|| selector(fields)))
            }
            "labelSelector" if !labels.requirements.is_empty() => {
                Val::data(self.labels.get_or_init(|| selector(labels)))
            }
            _ => return None,
        }))
    }

    fn names(&self) -> Vec<&str> {
        let all = [
            "namespace",
            "verb",
            "group",
            "version",
            "resource",
            "subresource",
            "name",
            "fieldSelector",
            "labelSelector",
        ];
        all.into_iter().filter(|name| self.get(name).is_some()).collect()
    }
}

impl LazyFields for ReviewPath<'_> {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        Some(Ok(match name {
            "path" => Val::str(&self.0.path),
            "verb" => Val::str(&self.0.verb),
            _ => return None,
        }))
    }

    fn names(&self) -> Vec<&str> {
        vec!["path", "verb"]
    }
}

const SPEC: &str = "kubernetes.SubjectAccessReviewSpec";
const RESOURCE: &str = "kubernetes.ResourceAttributes";
const NON_RESOURCE: &str = "kubernetes.NonResourceAttributes";
const FIELD_SELECTOR: &str = "kubernetes.FieldSelectorAttributes";
const LABEL_SELECTOR: &str = "kubernetes.LabelSelectorAttributes";
const REQUIREMENT: &str = "kubernetes.SelectorRequirement";

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
