//! Schemas: structural OpenAPI schemas become declared types, bounds for estimates, and the way data is read.

mod escape;
mod mutation;
mod read;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use value::{Str, Value};

pub use escape::{escape, unescape};
pub use mutation::MutationTypes;
pub(crate) use mutation::{is_mutation_type, is_object};

use crate::cost::estimate::{EstimateRange, SizeHints};
use crate::env::TypeProvider;
use crate::types::Type;

/// The structural schema of a value, as far as expressions care.
#[derive(Clone, Debug)]
pub struct Schema {
    kind: SchemaKind,
    /// How many elements, entries or characters there can be at most; for estimates.
    max_elements: u64,
    /// How few bytes the value takes at least; what can be in a list is bounded by it.
    min_serialized: u64,
}

#[derive(Clone, Debug)]
enum SchemaKind {
    /// Anything that is not looked into: integers or strings, and what has no schema.
    Dyn,
    Bool,
    Int,
    Number,
    String(StringFormat),
    List {
        items: Arc<Schema>,
        kind: ListKind,
    },
    Map(Arc<Schema>),
    Object {
        type_name: Str,
        properties: BTreeMap<Str, SchemaProperty>,
    },
}

/// How a string is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringFormat {
    Plain,
    Byte,
    Duration,
    Date,
    DateTime,
}

/// What makes two lists equal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListKind {
    Atomic,
    Set,
    /// The properties that tell elements apart.
    Map(Vec<Str>),
}

#[derive(Clone, Debug)]
struct SchemaProperty {
    /// The name in the data.
    name: Str,
    schema: Arc<Schema>,
}

impl Schema {
    /// Reads a structural schema. Gives `None` where expressions cannot see the value at all. `type_name` is the name of the
    /// declared type; `root` says whether it is that of a whole resource, whose `apiVersion`, `kind` and `metadata` always
    /// can be seen.
    pub fn from_openapi(schema: &Value, type_name: &str, root: bool) -> Option<Arc<Schema>> {
        read::read(schema, type_name, root, 0).map(Arc::new)
    }

    /// The type of values of this schema.
    pub fn declared_type(&self) -> Type {
        match &self.kind {
            SchemaKind::Dyn => Type::Dyn,
            SchemaKind::Bool => Type::Bool,
            SchemaKind::Int => Type::Int,
            SchemaKind::Number => Type::Double,
            SchemaKind::String(StringFormat::Plain) => Type::String,
            SchemaKind::String(StringFormat::Byte) => Type::Bytes,
            SchemaKind::String(StringFormat::Duration) => Type::Duration,
            SchemaKind::String(StringFormat::Date | StringFormat::DateTime) => Type::Timestamp,
            SchemaKind::List { items, .. } => Type::list(items.declared_type()),
            SchemaKind::Map(values) => Type::map(Type::String, values.declared_type()),
            SchemaKind::Object { type_name, .. } => Type::Struct(type_name.clone()),
        }
    }

    /// How few bytes a value takes at least: how often it can occur in a request is bounded by it.
    pub fn min_serialized(&self) -> u64 {
        self.min_serialized
    }

    /// The schema of the object type with a name, here or below.
    fn find(&self, wanted: &str) -> Option<&Schema> {
        match &self.kind {
            SchemaKind::List { items, .. } => items.find(wanted),
            SchemaKind::Map(values) => values.find(wanted),
            SchemaKind::Object { type_name, properties } => {
                if type_name == wanted {
                    return Some(self);
                }
                // Names of types inside start with the name of the type around them.
                let inside = wanted.strip_prefix(type_name.as_str())?;
                if !inside.starts_with('.') {
                    return None;
                }
                properties.values().find_map(|property| property.schema.find(wanted))
            }
            _ => None,
        }
    }
}

/// The types that schemas declare.
#[derive(Debug)]
pub struct SchemaTypes {
    roots: Vec<Arc<Schema>>,
}

impl SchemaTypes {
    /// The types of these schemas and of all inside them.
    pub fn new(roots: impl IntoIterator<Item = Arc<Schema>>) -> Self {
        SchemaTypes { roots: roots.into_iter().collect() }
    }

    fn find(&self, name: &str) -> Option<&Schema> {
        self.roots.iter().find_map(|root| root.find(name))
    }
}

impl TypeProvider for SchemaTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        self.find(name).map(Schema::declared_type)
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        match &self.find(type_name)?.kind {
            SchemaKind::Object { properties, .. } => {
                properties.get(field).map(|property| property.schema.declared_type())
            }
            _ => None,
        }
    }
}

/// Size hints from the schemas of variables.
#[derive(Debug)]
pub struct SchemaHints {
    variables: Vec<(Str, Arc<Schema>)>,
}

impl SchemaHints {
    /// Hints for variables with schemas.
    pub fn new(variables: impl IntoIterator<Item = (Str, Arc<Schema>)>) -> Self {
        SchemaHints { variables: variables.into_iter().collect() }
    }
}

impl SizeHints for SchemaHints {
    fn size(&self, path: &[Str], _: &Type) -> Option<EstimateRange> {
        let (variable, path) = path.split_first()?;
        // Kubernetes never looks at what the first step is called: a type's name counts as the value itself.
        let known = self.variables.iter().find(|(name, _)| name == variable);
        let (_, root) = known.or_else(|| self.variables.first())?;
        let mut here: &Schema = root;
        for step in path {
            here = match (&here.kind, step.as_str()) {
                (SchemaKind::List { items, .. }, "@items") => items,
                (SchemaKind::Map(values), "@values") => values,
                // Keys are strings as long as a request allows.
                (SchemaKind::Map(_), "@keys") => return Some(EstimateRange { min: 0, max: 0 }),
                (SchemaKind::Object { properties, .. }, field) => &properties.get(field)?.schema,
                _ => return None,
            };
        }
        Some(EstimateRange { min: 0, max: here.max_elements })
    }
}

#[cfg(test)]
mod tests;
