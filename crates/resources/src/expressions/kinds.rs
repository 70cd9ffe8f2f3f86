//! The types of a kind's schema, for checking expressions against what objects really look like.

use std::sync::Arc;

use cel::schema::unescape;
use cel::{Env, Type, TypeProvider};
use value::Str;

use super::{Age, DEEPEST_TYPE, Offered, Shape, VariableTypes, declared, environment};
use crate::schema::{Format, INT_OR_STRING, Kind, Link, Object, Schema};

/// Declares the types of one kind: `Pod`, `Pod.spec`, `Pod.spec.containers.@idx` and so on.
#[derive(Debug)]
pub struct KindTypes {
    name: Str,
    schema: Link,
}

impl KindTypes {
    /// The types of a kind with this schema.
    pub fn new(name: impl Into<Str>, schema: Link) -> Self {
        KindTypes { name: name.into(), schema }
    }

    /// The type of its objects.
    pub fn root(&self) -> Type {
        Type::Struct(self.name.clone())
    }

    /// Calls `found` with the schema of a type; `None` if there is none of this name.
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
            // To Kubernetes a type inside itself is an object of which no field is known.
            if !here.name.is_empty() && matches!(here.kind, Kind::Object(_)) {
                if above.contains(&here.name.as_str()) {
                    let closed = Schema { kind: Kind::Object(Object::default()), ..Schema::default() };
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
        self.find(name, |schema| type_of(schema, name))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let property = unescape(field)?;
        self.find(type_name, |schema| type_of(schema.field(&property)?, &format!("{type_name}.{field}")))
    }
}

/// The type of values of a schema; `None` where Kubernetes' schemas give expressions none, as for quantities.
fn type_of(schema: &Schema, name: &str) -> Option<Type> {
    Some(match &schema.kind {
        Kind::Any if schema.format == INT_OR_STRING => Type::Dyn,
        Kind::String(Format::Plain) if matches!(schema.format.as_str(), "date" | "date-time") => {
            Type::Timestamp
        }
        Kind::String(Format::Plain) if schema.format == "duration" => Type::Duration,
        Kind::String(Format::Plain) if schema.format == "byte" => Type::Bytes,
        Kind::Object(_) => Type::Struct(name.into()),
        Kind::Map(map) => Type::map(Type::String, type_of(map.values.get(), &format!("{name}.@elem"))?),
        Kind::List(list) => Type::list(type_of(list.items.get(), &format!("{name}.@idx"))?),
        Kind::String(Format::Plain) => Type::String,
        Kind::String(Format::Bytes) => Type::Bytes,
        Kind::String(Format::Time | Format::MicroTime) => Type::Timestamp,
        Kind::String(Format::IntOrString) => Type::Dyn,
        Kind::Int32 | Kind::Int64 => Type::Int,
        Kind::Float => Type::Double,
        Kind::Bool => Type::Bool,
        // `runtime.RawExtension` and `meta.v1.FieldsV1`: objects of which no field is known.
        Kind::Any if schema.is_free_object() => Type::Struct(name.into()),
        Kind::String(Format::Quantity) | Kind::Any | Kind::SchemaOr(_) => return None,
    })
}

/// Checks the expressions of one policy against one kind.
#[derive(Debug)]
pub struct TypedCompiler {
    env: Env,
    variables: Arc<VariableTypes>,
}

impl TypedCompiler {
    /// A checker for objects of a kind. `params` is `None` if the policy has none, and without types if they are not known.
    pub fn new(object: &Arc<KindTypes>, params: Option<Option<&Arc<KindTypes>>>) -> Self {
        let variables: Arc<VariableTypes> = Arc::default();
        let offered = Offered { params: params.is_some(), authorizer: false, patches: false };
        let provider = |types: &Arc<KindTypes>| Arc::clone(types) as Arc<dyn TypeProvider>;
        let mut env = environment(Shape { offered, composed: true, age: Age::Stored })
            .with_types(Arc::clone(&variables) as Arc<dyn TypeProvider>)
            .with_types(provider(object))
            .with_variables([
                ("object", object.root()),
                ("oldObject", object.root()),
                ("authorizer", cel::authz::authorizer_type()),
            ]);
        if let Some(Some(params)) = params {
            env = env.with_types(provider(params)).with_variables([("params", params.root())]);
        }
        TypedCompiler { env, variables }
    }

    /// Makes a variable known; one that does not compile may be anything.
    pub fn variable(&self, name: &str, expression: &str) {
        let checked = self.env.compile(expression);
        self.variables
            .add(name, checked.map_or(Type::Dyn, |checked| declared(checked.output_type(), DEEPEST_TYPE)));
    }

    /// What is wrong with an expression.
    pub fn check(&self, expression: &str) -> Result<(), String> {
        self.env.compile(expression).map(|_| ()).map_err(|issues| issues.to_string())
    }
}
