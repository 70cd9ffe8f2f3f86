//! Assignability of types and substitution of type parameters.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use value::Str;

use crate::types::{Type, TypeSort};

/// Upper bound of the types that one type consists of. `{a: a}` has twice as many as `a`, so that a short chain of
/// macros has a type that fits in no memory.
pub(super) const MAX_TYPE_PARTS: usize = 1000;
/// Upper bound of the types that are visited while one expression is checked.
const MAX_VISITED_TYPES: usize = 10_000_000;

/// Type parameters with the types found for them. Failed attempts are undone.
///
/// If a limit is exceeded, types that are too large become dyn and everything is assignable, so that checking ends
/// soon; [`TypeSubstitution::is_too_large`] then returns true.
#[derive(Debug, Default)]
pub(crate) struct TypeSubstitution {
    known: HashMap<Str, Type>,
    /// Undo log: the parameter and its previous type.
    undo: Vec<(Str, Option<Type>)>,
    /// Number of types visited so far.
    visited: Cell<usize>,
    too_large: Cell<bool>,
}

impl TypeSubstitution {
    /// True if a type exceeded [`MAX_TYPE_PARTS`], or all types together took too many visits.
    pub(crate) fn is_too_large(&self) -> bool {
        self.too_large.get()
    }

    /// The type, or dyn if it is too large.
    pub(crate) fn bounded(&self, ty: Type) -> Type {
        if !ty.is_larger_than(MAX_TYPE_PARTS) {
            return ty;
        }
        self.too_large.set(true);
        Type::Dyn
    }

    /// Counts the visit of a type. Returns false if there were too many.
    fn visit(&self) -> bool {
        let visited = self.visited.get() + 1;
        if visited > MAX_VISITED_TYPES {
            self.too_large.set(true);
            return false;
        }
        self.visited.set(visited);
        true
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(name) => self.known.get(name),
            _ => None,
        }
    }

    fn add(&mut self, parameter: &Type, ty: Type) {
        if let Type::Param(name) = parameter {
            let before = self.known.insert(name.clone(), ty);
            self.undo.push((name.clone(), before));
        }
    }

    /// Runs `attempt`; undoes its substitutions if it returns false.
    pub(crate) fn try_or_undo(&mut self, attempt: impl FnOnce(&mut Self) -> bool) -> bool {
        let mark = self.undo.len();
        if attempt(self) {
            if mark == 0 {
                self.undo.clear();
            }
            return true;
        }
        while self.undo.len() > mark {
            match self.undo.pop() {
                Some((name, Some(ty))) => self.known.insert(name, ty),
                Some((name, None)) => self.known.remove(&name),
                None => None,
            };
        }
        false
    }

    /// True if a value of type `from` is assignable to `to`.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        if !self.visit() {
            return true;
        }
        if to.sort() == TypeSort::Param {
            match self.substitutes(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if from.sort() == TypeSort::Param {
            return self.substitutes(to, from).0;
        }
        if matches!(from.sort(), TypeSort::Dyn | TypeSort::Error)
            || matches!(to.sort(), TypeSort::Dyn | TypeSort::Error)
        {
            return true;
        }
        if *from == Type::Null {
            return nullable(to);
        }
        if *to == Type::Null {
            return nullable(from);
        }
        match from.sort() {
            TypeSort::Scalar | TypeSort::Struct => to.accepts(from),
            TypeSort::Type => to.sort() == TypeSort::Type,
            TypeSort::Opaque | TypeSort::List | TypeSort::Map => {
                from.sort() == to.sort() && from.name() == to.name() && {
                    let (from, to) = (from.parameters(), to.parameters());
                    self.all_assignable(&from, &to)
                }
            }
            TypeSort::Dyn | TypeSort::Error | TypeSort::Null | TypeSort::Param => false,
        }
    }

    /// Like [`TypeSubstitution::assignable`], for each pair of types.
    pub(crate) fn all_assignable(&mut self, from: &[&Type], to: &[&Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.assignable(from, to))
    }

    /// Tries to substitute `ty` for a parameter. Returns whether that is possible, and whether the parameter had a
    /// type already.
    fn substitutes(&mut self, ty: &Type, parameter: &Type) -> (bool, bool) {
        if ty.is_exactly(parameter) {
            return (true, true);
        }
        if let Some(known) = self.find(parameter).cloned() {
            if ty.is_exactly(&known) && ty.sort() == known.sort() {
                return (true, true);
            }
            if self.assignable(ty, &known) {
                let general = most_general(ty, &known).clone();
                if self.does_not_occur(parameter, &general) {
                    self.add(parameter, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.does_not_occur(parameter, ty) {
            self.add(parameter, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Occurs check: true if `parameter` does not occur in `within`.
    fn does_not_occur(&self, parameter: &Type, within: &Type) -> bool {
        if !self.visit() {
            return true;
        }
        if parameter.is_exactly(within) {
            return false;
        }
        match within {
            Type::Param(_) => self.find(within).is_none_or(|known| self.does_not_occur(parameter, known)),
            _ => within.parameters().into_iter().all(|inner| self.does_not_occur(parameter, inner)),
        }
    }

    /// Replaces type parameters by their types; unknown ones become dyn if `to_dyn`.
    pub(crate) fn substitute(&self, ty: &Type, to_dyn: bool) -> Type {
        let mut left = MAX_TYPE_PARTS;
        let substituted = self.substitute_within(ty, to_dyn, &mut left);
        if left > 0 {
            return substituted;
        }
        self.too_large.set(true);
        Type::Dyn
    }

    /// Like [`TypeSubstitution::substitute`], for at most `left` types.
    fn substitute_within(&self, ty: &Type, to_dyn: bool, left: &mut usize) -> Type {
        *left = left.saturating_sub(1);
        if *left == 0 || !self.visit() {
            return Type::Dyn;
        }
        if let Some(known) = self.find(ty) {
            return self.substitute_within(known, to_dyn, left);
        }
        let mut inside = |ty: &Type| self.substitute_within(ty, to_dyn, left);
        match ty {
            Type::Param(_) if to_dyn => Type::Dyn,
            Type::List(element) => Type::list(inside(element)),
            Type::Map(entry) => Type::map(inside(&entry.0), inside(&entry.1)),
            Type::Type(Some(inner)) => Type::Type(Some(Arc::new(inside(inner)))),
            Type::Opaque(name, parameters) if !parameters.is_empty() => {
                Type::Opaque(name.clone(), parameters.iter().map(inside).collect())
            }
            other => other.clone(),
        }
    }
}

fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Opaque(..)
            | Type::Struct(_)
            | Type::Any
            | Type::Duration
            | Type::Timestamp
            | Type::Wrapper(_)
            | Type::Null
            | Type::Dyn
            | Type::Param(_)
    )
}

/// Replaces named type parameters.
pub(crate) fn rename(ty: &Type, names: &[(Str, Type)]) -> Type {
    match ty {
        Type::Param(name) => {
            names.iter().find(|(from, _)| from == name).map_or_else(|| ty.clone(), |(_, to)| to.clone())
        }
        Type::List(element) => Type::list(rename(element, names)),
        Type::Map(entry) => Type::map(rename(&entry.0, names), rename(&entry.1, names)),
        Type::Type(Some(inner)) => Type::Type(Some(Arc::new(rename(inner, names)))),
        Type::Opaque(name, parameters) if !parameters.is_empty() => {
            Type::Opaque(name.clone(), parameters.iter().map(|inner| rename(inner, names)).collect())
        }
        other => other.clone(),
    }
}

/// The more general of two assignable types.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if equal_or_less_specific(a, b) { a } else { b }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if matches!(a.sort(), TypeSort::Dyn | TypeSort::Param) {
        return true;
    }
    if matches!(b.sort(), TypeSort::Dyn | TypeSort::Param) {
        return false;
    }
    match (a, b) {
        (Type::Opaque(..), Type::Opaque(..))
        | (Type::List(_), Type::List(_))
        | (Type::Map(_), Type::Map(_)) => {
            let (p, q) = (a.parameters(), b.parameters());
            a.name() == b.name()
                && p.len() == q.len()
                && p.iter().zip(q).all(|(a, b)| equal_or_less_specific(a, b))
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => a.is_exactly(b),
    }
}
