//! The meaning of names: variables, types, functions and fields, in their containers.

use std::sync::Arc;

use value::Str;

use super::Env;
use crate::decl::Function;
use crate::lib::messages;
use crate::types::Type;

/// The meaning of a name outside all comprehensions.
pub(crate) enum GlobalName {
    Variable(Type),
    Type(Type),
    Int(i64),
}

impl Env {
    pub(crate) fn container(&self) -> &str {
        &self.container
    }

    /// The qualified names that `name` may refer to, innermost container first.
    pub(crate) fn candidates(&self, name: &str) -> Vec<Str> {
        if let Some(absolute) = name.strip_prefix('.') {
            return vec![absolute.into()];
        }
        let mut candidates = Vec::new();
        let mut container = self.container.as_str();
        while !container.is_empty() {
            candidates.push(format!("{container}.{name}").into());
            container = container.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        candidates.push(name.into());
        candidates
    }

    pub(crate) fn function(&self, name: &str) -> Option<Arc<Function>> {
        self.candidates(name).iter().find_map(|candidate| self.library.functions.get(candidate).cloned())
    }

    pub(crate) fn global(&self, name: &str) -> Option<GlobalName> {
        if let Some((_, ty)) = self.variables.iter().find(|(declared, _)| declared == name) {
            return Some(GlobalName::Variable(ty.clone()));
        }
        if let Some(ty) = self.find_type(name) {
            return Some(GlobalName::Type(ty));
        }
        messages::enum_value(name).map(GlobalName::Int)
    }

    fn find_type(&self, name: &str) -> Option<Type> {
        self.library
            .types
            .get(name)
            .cloned()
            .or_else(|| messages::type_called(name))
            .or_else(|| self.providers.iter().find_map(|provider| provider.find_type(name)))
    }

    pub(crate) fn resolve_type(&self, name: &str) -> Option<(Str, Type)> {
        self.candidates(name).into_iter().find_map(|candidate| {
            let ty = self.find_type(&candidate)?;
            Some((candidate, ty))
        })
    }

    pub(crate) fn has_struct(&self, name: &str) -> bool {
        messages::type_called(name).is_some()
            || self.providers.iter().any(|provider| provider.find_type(name).is_some())
    }

    pub(crate) fn field_type(&self, type_name: &str, field: &str) -> Option<Type> {
        messages::field_type(type_name, field)
            .or_else(|| self.providers.iter().find_map(|provider| provider.find_field(type_name, field)))
    }
}
