//! The second mutating pass: what policies and webhooks asked for, and what they must remember until then.

use std::collections::BTreeSet;

use value::{Str, Value};

/// One request's passes through the mutating part of the chain. There are at most two.
#[derive(Debug, Default)]
pub struct Reinvocation {
    second: bool,
    wanted: bool,
    /// Of the mutating policies.
    pub policies: Rounds,
    /// Of the mutating webhooks.
    pub webhooks: Rounds,
}

impl Reinvocation {
    /// Whether this is the second pass.
    pub fn is_second(&self) -> bool {
        self.second
    }

    /// Asks for a second pass.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Begins the second pass, if one was asked for.
    pub(crate) fn begin_second(&mut self) -> bool {
        if self.second || !self.wanted {
            return false;
        }
        self.second = true;
        true
    }
}

/// What one of the two kinds of mutators remembers between its rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Those that ran in the first pass and want to run again when somebody after them changes the object.
    invoked: BTreeSet<Str>,
    /// Those that must run in the second pass.
    again: BTreeSet<Str>,
    /// What the last of them left.
    output: Option<Value>,
}

impl Rounds {
    /// One that wants to see later changes has run.
    pub fn ran(&mut self, name: impl Into<Str>) {
        self.invoked.insert(name.into());
    }

    /// The object changed: all that ran so far run again.
    pub fn require_again(&mut self) {
        self.again.append(&mut self.invoked);
    }

    /// Whether this one runs in the second pass.
    pub fn is_required(&self, name: &str) -> bool {
        self.again.contains(name)
    }

    /// Remembers what the last of them left.
    pub fn left(&mut self, output: &Value) {
        self.output = Some(output.clone());
    }

    /// Whether somebody else changed the object since.
    pub fn changed_since(&self, object: &Value) -> bool {
        self.output.as_ref() != Some(object)
    }
}
