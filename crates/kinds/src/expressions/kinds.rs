//! CEL types of a kind's schema, for type-checking expressions against the real fields of objects.

use std::sync::Arc;

use cel::schema::unescape;
use cel::{Env, Issues, Type, TypeProvider};
use schema::{INT_OR_STRING, Link, Object, Schema, StringEncoding, ValueType};
use value::Str;

use super::{Age, DEEPEST_TYPE, EnvironmentKey, OptionalVariables, VariableTypes, declared, environment};

/// Declares the types of one kind: `Pod`, `Pod.spec`, `Pod.spec.containers.@idx` and so on.
#[derive(Debug)]
pub struct KindTypes {
    name: Str,
    schema: Link,
    /// Set for types created by `KindTypes::tolerant`.
    tolerant: bool,
}

impl KindTypes {
    /// Types of a kind with this schema, as in kube-apiserver's type checking of policies.
    pub fn new(name: impl Into<Str>, schema: Link) -> Self {
        KindTypes { name: name.into(), schema, tolerant: false }
    }

    /// Types for a check that must not produce false errors. Values without a type in kube-apiserver's check, and values whose type
    /// there differs from what expressions see at run time (times, durations and bytes are strings in objects), are `dyn`.
    pub fn tolerant(name: impl Into<Str>, schema: Link) -> Self {
        KindTypes { name: name.into(), schema, tolerant: true }
    }

    /// Type of the kind's objects.
    pub fn root(&self) -> Type {
        Type::Struct(self.name.clone())
    }

    /// Calls `found` with the schema of the type called `name`; `None` if there is no such type.
    fn find<T>(&self, name: &str, found: impl FnOnce(&Schema) -> Option<T>) -> Option<T> {
        let rest = name.strip_prefix(self.name.as_str())?;
        if !rest.is_empty() && !rest.starts_with('.') {
            return None;
        }
        let mut here = self.schema.get();
        let mut above = vec![here.name.as_str()];
        for step in rest.split('.').skip(1) {
            here = match step {
                "@idx" | "@elem" => here.element()?,
                field => here.field(&unescape(field)?)?,
            };
            // kube-apiserver treats a recursive type as an object without known fields.
            if !self.tolerant && !here.name.is_empty() && matches!(here.value_type, ValueType::Object(_)) {
                if above.contains(&here.name.as_str()) {
                    let closed =
                        Schema { value_type: ValueType::Object(Object::default()), ..Schema::default() };
                    return found(&closed);
                }
                above.push(&here.name);
            }
        }
        found(here)
    }
}

impl TypeProvider for KindTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        self.find(name, |schema| self.type_of(schema, name))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let property = unescape(field)?;
        self.find(type_name, |schema| match schema.field(&property) {
            Some(found) => self.type_of(found, &format!("{type_name}.{field}")),
            None => self.type_of_unknown(schema),
        })
    }
}

impl KindTypes {
    /// Type of the values of a schema; `None` where kube-apiserver has none, for example for quantities.
    fn type_of(&self, schema: &Schema, name: &str) -> Option<Type> {
        let anything = self.tolerant.then_some(Type::Dyn);
        Some(match &schema.value_type {
            ValueType::Any if schema.format == INT_OR_STRING => Type::Dyn,
            ValueType::String(StringEncoding::Plain)
                if matches!(schema.format.as_str(), "date" | "date-time") =>
            {
                anything.unwrap_or(Type::Timestamp)
            }
            ValueType::String(StringEncoding::Plain) if schema.format == "duration" => {
                anything.unwrap_or(Type::Duration)
            }
            ValueType::String(StringEncoding::Plain) if schema.format == "byte" => {
                anything.unwrap_or(Type::Bytes)
            }
            ValueType::Object(_) => Type::Struct(name.into()),
            ValueType::Map(map) => {
                Type::map(Type::String, self.type_of(map.values.get(), &format!("{name}.@elem"))?)
            }
            ValueType::List(list) => Type::list(self.type_of(list.items.get(), &format!("{name}.@idx"))?),
            ValueType::String(StringEncoding::Plain) => Type::String,
            ValueType::String(StringEncoding::Bytes) => anything.unwrap_or(Type::Bytes),
            ValueType::String(StringEncoding::Time | StringEncoding::MicroTime) => {
                anything.unwrap_or(Type::Timestamp)
            }
            ValueType::String(StringEncoding::IntOrString) => Type::Dyn,
            ValueType::Int32 | ValueType::Int64 => Type::Int,
            ValueType::Float => Type::Double,
            ValueType::Bool => Type::Bool,
            // `runtime.RawExtension` and `meta.v1.FieldsV1`: objects without known fields.
            ValueType::Any if schema.is_free_object() => anything.unwrap_or(Type::Struct(name.into())),
            ValueType::String(StringEncoding::Quantity) | ValueType::Any | ValueType::SchemaOr(_) => {
                return anything;
            }
        })
    }

    /// Type of a field that the schema does not declare; `None` if such a field cannot exist.
    fn type_of_unknown(&self, schema: &Schema) -> Option<Type> {
        let keeps_others = schema.object().is_some_and(|object| object.rest.is_some());
        (self.tolerant && keeps_others).then_some(Type::Dyn)
    }
}

/// Type-checks the expressions of one policy against one kind.
#[derive(Debug)]
pub struct TypedCompiler {
    env: Env,
    variables: Arc<VariableTypes>,
    tolerant: bool,
}

impl TypedCompiler {
    /// Creates a checker for objects of a kind. `params` is `None` if the policy has none, `Some(None)` if their types are unknown.
    pub fn new(object: &Arc<KindTypes>, params: Option<Option<&Arc<KindTypes>>>) -> Self {
        let optional = OptionalVariables { params: params.is_some(), authorizer: false, patches: false };
        Self::with(object, params.flatten(), optional)
    }

    /// Creates a checker for policies without parameters that reports only certain errors. `object` should be
    /// [tolerant](KindTypes::tolerant) types. `patches` is true for mutating policies.
    pub fn tolerant(object: &Arc<KindTypes>, patches: bool) -> Self {
        Self::with(object, None, OptionalVariables { params: false, authorizer: true, patches })
    }

    fn with(object: &Arc<KindTypes>, params: Option<&Arc<KindTypes>>, optional: OptionalVariables) -> Self {
        let variables: Arc<VariableTypes> = Arc::default();
        let provider = |types: &Arc<KindTypes>| Arc::clone(types) as Arc<dyn TypeProvider>;
        let mut env = environment(EnvironmentKey { optional, composed: true, age: Age::Stored })
            .with_types(Arc::clone(&variables) as Arc<dyn TypeProvider>)
            .with_types(provider(object))
            .with_variables([
                ("object", object.root()),
                ("oldObject", object.root()),
                ("authorizer", cel::authz::authorizer_type()),
            ]);
        if let Some(params) = params {
            env = env.with_types(provider(params)).with_variables([("params", params.root())]);
        }
        TypedCompiler { env, variables, tolerant: object.tolerant }
    }

    /// Checks the expression of a variable and declares the variable. One that does not compile has type `dyn`.
    pub fn variable(&self, name: &str, expression: &str) -> Result<(), Issues> {
        let checked = self.env.compile(expression);
        let known = match &checked {
            // kube-apiserver's check drops object types of variables.
            Ok(checked) => declared(checked.output_type(), DEEPEST_TYPE, self.tolerant),
            Err(_) => Type::Dyn,
        };
        self.variables.add(name, known);
        checked.map(|_| ())
    }

    pub fn check(&self, expression: &str) -> Result<(), Issues> {
        self.env.compile(expression).map(|_| ())
    }
}
