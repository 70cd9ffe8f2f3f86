//! Collects what libraries declare.

use std::collections::HashMap;
use std::sync::Arc;

use value::Str;

use crate::check::Validator;
use crate::decl::{Function, Implementation, Overload, Singleton};
use crate::syntax::macros::{Expander, Macros};
use crate::types::Type;
use crate::val::ValKind;

/// Collects the declarations of an environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builder {
    pub(super) functions: HashMap<Str, Function>,
    pub(super) macros: Macros,
    pub(super) validators: Vec<Validator>,
    pub(super) optional_syntax: bool,
    pub(super) cross_type_comparisons: bool,
    pub(super) costs_of_lists: bool,
    pub(super) types: HashMap<Str, Type>,
}

impl Builder {
    /// Declares overloads: id, signature, implementation.
    pub(crate) fn function(&mut self, name: &'static str, overloads: &[(&str, &str, Implementation)]) {
        let overloads =
            overloads.iter().map(|(id, signature, run)| Overload::read(id, signature, Some(*run)));
        self.entry(name).overloads.extend(overloads.map(Arc::new));
    }

    /// Declares overloads without implementations.
    pub(crate) fn declare(&mut self, name: &'static str, overloads: &[(&str, &str)]) {
        let overloads = overloads.iter().map(|(id, signature)| Overload::read(id, signature, None));
        self.entry(name).overloads.extend(overloads.map(Arc::new));
    }

    /// Declares a function whose overloads share one implementation.
    pub(crate) fn singleton(
        &mut self,
        name: &'static str,
        accepts: fn(ValKind) -> bool,
        run: Implementation,
        overloads: &[(&str, &str)],
    ) {
        self.declare(name, overloads);
        self.entry(name).singleton = Some(Singleton { run, accepts });
    }

    pub(super) fn entry(&mut self, name: &str) -> &mut Function {
        self.functions.entry(name.into()).or_insert_with(|| Function {
            name: name.into(),
            overloads: Vec::new(),
            singleton: None,
            guarded: true,
        })
    }

    /// Skips the run-time check of argument types, because the implementation makes it.
    pub(crate) fn unguarded(&mut self, name: &'static str) {
        self.entry(name).guarded = false;
    }

    /// Makes the last overload stop evaluating arguments at the first error.
    pub(crate) fn stops_early(&mut self, name: &'static str) {
        if let Some(overload) = self.entry(name).overloads.last_mut() {
            Arc::make_mut(overload).stops_early = true;
        }
    }

    pub(crate) fn macros(&mut self, table: &[(&'static str, usize, bool, Expander)]) {
        self.macros.add(table);
    }

    pub(crate) fn validator(&mut self, validator: Validator) {
        if !self.validators.contains(&validator) {
            self.validators.push(validator);
        }
    }

    pub(crate) fn optional_syntax(&mut self) {
        self.optional_syntax = true;
    }

    pub(crate) fn costs_of_lists(&mut self) {
        self.costs_of_lists = true;
    }

    /// Declares a type name that expressions can use as a value.
    pub(crate) fn type_name(&mut self, ty: Type) {
        self.types.insert(ty.name().into(), ty);
    }
}
