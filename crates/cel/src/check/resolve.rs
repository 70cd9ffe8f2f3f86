//! Names to what they stand for: variables of comprehensions first, then those of the environment, then types.

use value::Str;

use super::{Checker, ResolvedReference, global};
use crate::types::Type;

impl Checker<'_> {
    /// What a simple name stands for.
    pub(super) fn resolve_name(&self, name: &str) -> Option<(Str, Type, ResolvedReference)> {
        let bare = name.strip_prefix('.').unwrap_or(name);
        let local = self.local(bare);
        if let Some(ty) = local
            && !name.starts_with('.')
        {
            return Some((name.into(), ty.clone(), ResolvedReference::Variable));
        }
        self.resolve_global(name, local.is_some())
    }

    /// What `a.b.c` stands for as one name. A variable of a comprehension is never part of a longer name.
    pub(super) fn resolve_qualified(&self, names: &[Str]) -> Option<(Str, Type, ResolvedReference)> {
        let [first, _, ..] = names else { return None };
        let bare = first.strip_prefix('.').unwrap_or(first);
        let local = self.local(bare).is_some();
        if local && !first.starts_with('.') {
            return None;
        }
        self.resolve_global(&names.join("."), local)
    }

    fn resolve_global(&self, name: &str, disambiguate: bool) -> Option<(Str, Type, ResolvedReference)> {
        self.env.candidates(name).into_iter().find_map(|candidate| {
            let found = self.env.global(&candidate)?;
            Some(global(&candidate, disambiguate, found))
        })
    }
}
