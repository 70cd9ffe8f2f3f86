//! The values a program runs on.

use std::sync::Arc;

use value::Str;

use crate::env::Env;
use crate::lib::authz::Authorizer;
use crate::val::Val;

/// The values of the variables of an environment.
#[derive(Clone)]
pub struct Activation<'a> {
    pub(super) values: Vec<Option<Val<'a>>>,
    pub(super) names: Arc<[Str]>,
    /// The variables that nobody gave a value.
    pub(super) absent: Vec<usize>,
    pub(super) authorizer: Option<&'a dyn Authorizer>,
    pub(super) interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Activation<'a> {
    /// No values yet, for the variables of `env`.
    pub fn new(env: &Env) -> Self {
        let names = env.variable_names();
        let values = vec![None; names.len()];
        Activation { values, names, absent: Vec::new(), authorizer: None, interrupted: None }
    }

    /// Sets a variable; a name the environment does not declare is left out.
    pub fn set(&mut self, name: &str, val: Val<'a>) {
        if let Some(at) = self.names.iter().position(|declared| declared == name)
            && let Some(slot) = self.values.get_mut(at)
        {
            *slot = Some(val);
        }
    }

    /// Sets a variable that nobody gave a value: it is null, and messages tell it from a null of the data.
    pub fn set_absent(&mut self, name: &str) {
        self.set(name, Val::Null);
        self.absent.extend(self.names.iter().position(|declared| declared == name));
    }

    /// As [`Activation::set`], for building.
    #[must_use]
    pub fn with(mut self, name: &str, val: Val<'a>) -> Self {
        self.set(name, val);
        self
    }

    /// What answers the checks of the `authorizer` variable.
    pub fn set_authorizer(&mut self, authorizer: &'a dyn Authorizer) {
        self.authorizer = Some(authorizer);
    }

    /// Asked now and then while loops run; evaluation ends when it says yes.
    pub fn set_interrupt(&mut self, interrupted: &'a (dyn Fn() -> bool + Sync)) {
        self.interrupted = Some(interrupted);
    }
}
