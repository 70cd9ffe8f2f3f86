//! Structural OpenAPI schemas as CEL types: declared types, size bounds for cost estimates, and typed views of data.

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
use crate::syntax::token::is_reserved;
use crate::types::Type;

/// Structural schema of a value, reduced to the parts that CEL needs.
#[derive(Clone, Debug)]
pub struct CelSchema {
    kind: SchemaKind,
    /// Upper bound of elements, entries or characters, used in cost estimates.
    max_elements: u64,
    /// Lower bound of the serialized size in bytes. It bounds how many elements fit into a list of a request.
    min_serialized: u64,
}

#[derive(Clone, Debug)]
enum SchemaKind {
    /// A value without a static type, such as `x-kubernetes-int-or-string`.
    Dyn,
    Bool,
    Int,
    Number,
    String(StringFormat),
    List {
        items: Arc<CelSchema>,
        kind: ListKind,
    },
    Map(Arc<CelSchema>),
    Object {
        type_name: Str,
        properties: BTreeMap<Str, SchemaProperty>,
    },
}

/// The string formats that have a CEL type of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringFormat {
    Plain,
    Byte,
    Duration,
    Date,
    DateTime,
}

/// `x-kubernetes-list-type`: decides equality and concatenation of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListKind {
    Atomic,
    Set,
    /// Names of the key properties (`x-kubernetes-list-map-keys`).
    Map(Vec<Str>),
}

#[derive(Clone, Debug)]
struct SchemaProperty {
    /// The unescaped name, as in the data.
    name: Str,
    schema: Arc<CelSchema>,
}

impl CelSchema {
    /// Reads a structural schema; returns `None` if expressions cannot access the value.
    ///
    /// `type_name` names the declared type. `root` marks the schema of a whole resource, whose `apiVersion`, `kind`
    /// and `metadata` are always accessible.
    pub fn from_openapi(schema: &Value, type_name: &str, root: bool) -> Option<Arc<CelSchema>> {
        read::read(schema, type_name, root, 0).map(Arc::new)
    }

    /// CEL type of the values that this schema describes.
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

    /// Lower bound of a value's serialized size in bytes. It bounds how often the value can occur in one request.
    pub fn min_serialized(&self) -> u64 {
        self.min_serialized
    }

    /// Finds the schema of the object type `wanted`, here or in a nested schema.
    fn find(&self, wanted: &str) -> Option<&CelSchema> {
        match &self.kind {
            SchemaKind::List { items, .. } => items.find(wanted),
            SchemaKind::Map(values) => values.find(wanted),
            SchemaKind::Object { type_name, properties } => {
                if type_name == wanted {
                    return Some(self);
                }
                // The name of a nested type is that of the enclosing type, a dot and the property's escaped name.
                let inside = wanted.strip_prefix(type_name.as_str())?.strip_prefix('.')?;
                let property = inside.split('.').next()?;
                properties.get(property)?.schema.find(wanted)
            }
            _ => None,
        }
    }
}

/// Type provider for the object types that schemas declare.
#[derive(Debug)]
pub struct SchemaTypes {
    roots: Vec<Arc<CelSchema>>,
}

impl SchemaTypes {
    /// Declares the types of `roots` and of all nested schemas.
    pub fn new(roots: impl IntoIterator<Item = Arc<CelSchema>>) -> Self {
        SchemaTypes { roots: roots.into_iter().collect() }
    }

    fn find(&self, name: &str) -> Option<&CelSchema> {
        self.roots.iter().find_map(|root| root.find(name))
    }
}

impl TypeProvider for SchemaTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        self.find(name).map(CelSchema::declared_type)
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        match &self.find(type_name)?.kind {
            SchemaKind::Object { properties, .. } => {
                // Reserved words that the parser accepts after a dot (`self.namespace`) need no escape.
                let unescaped = || properties.get(&escape(field).filter(|_| is_reserved(field))?);
                properties.get(field).or_else(unescaped).map(|property| property.schema.declared_type())
            }
            _ => None,
        }
    }
}

/// Size hints for cost estimates, from the schemas of variables.
#[derive(Debug)]
pub struct SchemaHints {
    variables: Vec<(Str, Arc<CelSchema>)>,
}

impl SchemaHints {
    /// Takes the variables' names with their schemas.
    pub fn new(variables: impl IntoIterator<Item = (Str, Arc<CelSchema>)>) -> Self {
        SchemaHints { variables: variables.into_iter().collect() }
    }
}

impl SizeHints for SchemaHints {
    fn size(&self, path: &[Str], _: &Type) -> Option<EstimateRange> {
        let (variable, path) = path.split_first()?;
        // Kubernetes ignores the name of the first path step, so the name of a type gets the size of the first
        // variable.
        let known = self.variables.iter().find(|(name, _)| name == variable);
        let (_, root) = known.or_else(|| self.variables.first())?;
        let mut here: &CelSchema = root;
        for step in path {
            here = match (&here.kind, step.as_str()) {
                (SchemaKind::List { items, .. }, "@items") => items,
                (SchemaKind::Map(values), "@values") => values,
                // Kubernetes gives map keys the size 0.
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
