//! Types that only mutating admission policies have: `JSONPatch{…}` and `Object{…}`.

use value::Str;

use crate::env::TypeProvider;
use crate::types::Type;

/// Type provider for `JSONPatch`, `Object` and every nested `Object.FIELD` type.
#[derive(Clone, Copy, Debug)]
pub struct MutationTypes;

pub(crate) fn is_object(name: &str) -> bool {
    name == "Object" || name.starts_with("Object.")
}

/// True for `JSONPatch`, `Object` and `Object.FIELD` types.
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
            // cel-go accepts unknown fields of JSONPatch and gives them a type with an empty name.
            ("JSONPatch", _) => Some(Type::Struct(Str::default())),
            _ if is_object(type_name) => Some(Type::Dyn),
            _ => None,
        }
    }
}
