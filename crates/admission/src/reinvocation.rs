//! Reinvocation of mutating policies and webhooks: which of them run again in the second pass.

use std::collections::BTreeSet;

use value::{Str, Value};

/// The state of one request's passes through the mutating phase. There are at most two.
#[derive(Debug, Default)]
pub struct Reinvocation {
    second: bool,
    wanted: bool,
    pub policies: ReinvocationState,
    pub webhooks: ReinvocationState,
}

impl Reinvocation {
    pub fn is_second(&self) -> bool {
        self.second
    }

    pub fn request_second_pass(&mut self) {
        self.wanted = true;
    }

    /// Starts the second pass if it was requested. Returns false if there is none.
    pub(crate) fn begin_second(&mut self) -> bool {
        if self.second || !self.wanted {
            return false;
        }
        self.second = true;
        true
    }
}

/// Reinvocation state of the mutating policies or of the mutating webhooks.
#[derive(Debug, Default)]
pub struct ReinvocationState {
    /// Invoked in the first pass, with `reinvocationPolicy: IfNeeded`.
    invoked: BTreeSet<Str>,
    /// To be invoked again in the second pass.
    required: BTreeSet<Str>,
    /// The object after the last invocation.
    last_output: Option<Value>,
}

impl ReinvocationState {
    /// Remembers an invocation with `reinvocationPolicy: IfNeeded`.
    pub fn add_reinvocable(&mut self, name: impl Into<Str>) {
        self.invoked.insert(name.into());
    }

    /// Marks all invocations added so far for the second pass, because the object changed after them.
    pub fn require_reinvocation(&mut self) {
        self.required.append(&mut self.invoked);
    }

    pub fn should_reinvoke(&self, name: &str) -> bool {
        self.required.contains(name)
    }

    pub fn set_last_output(&mut self, last_output: &Value) {
        self.last_output = Some(last_output.clone());
    }

    /// Whether another plugin changed the object since the last invocation.
    pub fn is_output_changed(&self, object: &Value) -> bool {
        self.last_output.as_ref() != Some(object)
    }
}
