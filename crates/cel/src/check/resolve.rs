//! Resolves names: comprehension variables first, then the environment's variables, then types.

use value::Str;

use super::{Checker, ResolvedReference, global};
use crate::types::Type;

impl Checker<'_> {
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

    /// Resolves `a.b.c` as one qualified name. A comprehension variable is never part of a qualified name.
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
