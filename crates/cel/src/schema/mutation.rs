//! The types of mutating policies: `JSONPatch{…}` and `Object{…}`.

use value::Str;

use crate::env::TypeProvider;
use crate::types::Type;

/// Declares `JSONPatch`, `Object` and every `Object.FIELD…`.
#[derive(Clone, Copy, Debug)]
pub struct MutationTypes;

pub(crate) fn is_object(name: &str) -> bool {
    name == "Object" || name.starts_with("Object.")
}

/// Whether a type is one of those that only mutating policies have.
pub(crate) fn is_mutation_type(name: &str) -> bool {
    name == "JSONPatch" || is_object(name)
}

impl TypeProvider for MutationTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        is_mutation_type(name).then(|| Type::Struct(name.into()))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        match (type_name, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            // The reference knows every field, and gives those that there are not a type without a name.
            ("JSONPatch", _) => Some(Type::Struct(Str::default())),
            _ if is_object(type_name) => Some(Type::Dyn),
            _ => None,
        }
    }
}
