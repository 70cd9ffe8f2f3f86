//! Variable values for an evaluation.

use std::sync::Arc;

use value::Str;

use crate::env::Env;
use crate::lib::authz::RecordedDecisions;
use crate::val::{Val, ValueMemory};

/// The values of an environment's variables, with the authorizer and the interrupt callback.
#[derive(Clone)]
pub struct Activation<'a> {
    pub(super) values: Vec<Option<Val<'a>>>,
    pub(super) names: Arc<[Str]>,
    /// Indices of the variables set with [`Activation::set_absent`].
    pub(super) absent: Vec<usize>,
    pub(super) authorizer: Option<&'a dyn RecordedDecisions>,
    pub(super) interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
    pub(super) memory: Option<&'a ValueMemory>,
}

impl<'a> Activation<'a> {
    /// An activation without values, for the variables of `env`.
    pub fn new(env: &Env) -> Self {
        let names = env.variable_names();
        let values = vec![None; names.len()];
        Activation { values, names, absent: Vec::new(), authorizer: None, interrupted: None, memory: None }
    }

    /// Sets a variable. Names that the environment does not declare are ignored.
    pub fn set(&mut self, name: &str, val: Val<'a>) {
        if let Some(at) = self.names.iter().position(|declared| declared == name)
            && let Some(slot) = self.values.get_mut(at)
        {
            *slot = Some(val);
        }
    }

    /// Sets a variable to null because it has no value. Some messages distinguish this from a null in the data.
    pub fn set_absent(&mut self, name: &str) {
        self.set(name, Val::Null);
        self.absent.extend(self.names.iter().position(|declared| declared == name));
    }

    /// Builder form of [`Activation::set`].
    #[must_use]
    pub fn with(mut self, name: &str, val: Val<'a>) -> Self {
        self.set(name, val);
        self
    }

    /// Sets the authorizer that decides the checks of the `authorizer` variable.
    pub fn set_authorizer(&mut self, authorizer: &'a dyn RecordedDecisions) {
        self.authorizer = Some(authorizer);
    }

    /// Sets a callback that loops call periodically; evaluation ends when it returns true.
    pub fn set_interrupt(&mut self, interrupted: &'a (dyn Fn() -> bool + Sync)) {
        self.interrupted = Some(interrupted);
    }

    /// Limits the values that all evaluations with `memory` hold together.
    pub fn set_memory(&mut self, memory: &'a ValueMemory) {
        self.memory = Some(memory);
    }
}
