//! What admission counts and how long it takes. The server keeps the counters, under Kubernetes' names; time comes from here, too,
//! because nothing that decides reads a clock.

use std::time::Duration;

use crate::{Operation, PluginName};

/// One of the two halves of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// May change the object.
    Mutating,
    /// May only refuse it.
    Validating,
}

impl Phase {
    /// The label of steps and plugins.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Mutating => "admit",
            Phase::Validating => "validate",
        }
    }

    /// The label of webhooks: Kubernetes has another word for the second half there.
    pub fn webhook_label(self) -> &'static str {
        match self {
            Phase::Mutating => "admit",
            Phase::Validating => "validating",
        }
    }
}

/// A link of the chain: its place in the list of all, counted from 0, so that its counters need not be looked up by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The place.
    pub place: usize,
    /// The name.
    pub name: PluginName,
}

/// Why a webhook's answer, or the want of one, refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The webhook said no.
    Denied,
    /// It could not be called, or what it answered was none.
    Calling,
    /// This server could not do what it answered.
    Internal,
}

impl Rejection {
    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejection::Denied => "no_error",
            Rejection::Calling => "calling_webhook_error",
            Rejection::Internal => "apiserver_internal_error",
        }
    }
}

/// Whose match conditions are evaluated, for which request.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    /// The name of the webhook or policy.
    pub name: &'a str,
    /// `webhook` or `policy`.
    pub kind: &'a str,
    /// The half of the chain, as the family spells it.
    pub phase: &'a str,
    /// What the request does.
    pub operation: Operation,
}

/// What went wrong with an expression of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckError {
    /// Nothing.
    None,
    /// It does not compile.
    Compile,
    /// It cost too much.
    Budget,
    /// It failed, or said no: Kubernetes does not tell them apart.
    Invalid,
}

impl CheckError {
    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            CheckError::None => "no_error",
            CheckError::Compile => "compile_error",
            CheckError::Budget => "out_of_budget",
            CheckError::Invalid => "invalid_error",
        }
    }

    /// As Kubernetes tells them apart: by the message.
    pub(crate) fn of(message: &str) -> Self {
        if message.starts_with("compilation") {
            CheckError::Compile
        } else if message.starts_with("validation failed due to running out of cost budget") {
            CheckError::Budget
        } else {
            CheckError::Invalid
        }
    }
}

/// Keeps the counters. Every method but the clock does nothing unless implemented.
pub trait Meter: Send + Sync {
    /// The time since a moment that stays the same.
    fn now(&self) -> Duration;

    /// Where decisions of policies and webhooks of manifest files are counted besides.
    fn manifests(&self) -> Option<&dyn Meter> {
        None
    }

    /// A whole phase was passed.
    fn step(&self, phase: Phase, operation: Operation, rejected: bool, took: Duration) {
        let _ = (phase, operation, rejected, took);
    }

    /// A link of the chain was passed.
    fn plugin(&self, link: Linked, phase: Phase, operation: Operation, rejected: bool, took: Duration) {
        let _ = (link, phase, operation, rejected, took);
    }

    /// A webhook was asked. `code` is 200 unless something went wrong.
    fn webhook(
        &self,
        name: &str,
        phase: Phase,
        operation: Operation,
        code: u16,
        rejected: bool,
        took: Duration,
    ) {
        let _ = (name, phase, operation, code, rejected, took);
    }

    /// A webhook, or the want of its answer, refused a request.
    fn webhook_rejected(&self, name: &str, phase: Phase, operation: Operation, why: Rejection, code: u16) {
        let _ = (name, phase, operation, why, code);
    }

    /// A webhook failed, and the request goes on.
    fn webhook_failed_open(&self, name: &str, phase: Phase) {
        let _ = (name, phase);
    }

    /// Match conditions were evaluated.
    fn conditions_evaluated(&self, conditions: &Conditions<'_>, took: Duration) {
        let _ = (conditions, took);
    }

    /// One of them failed.
    fn condition_failed(&self, conditions: &Conditions<'_>) {
        let _ = conditions;
    }

    /// A validating policy decided: what went wrong, and what it led to.
    fn policy_checked(&self, policy: &str, binding: &str, error: CheckError, action: &str, took: Duration) {
        let _ = (policy, binding, error, action, took);
    }

    /// A mutation of a mutating policy was tried.
    fn mutation_checked(&self, policy: &str, binding: &str, error: CheckError, took: Duration) {
        let _ = (policy, binding, error, took);
    }

    /// They left their owner out.
    fn conditions_excluded(&self, conditions: &Conditions<'_>) {
        let _ = conditions;
    }
}

/// Whoever counts a decision: the meter, and for what comes from manifest files its other one besides.
pub(crate) fn counters(meter: &dyn Meter, is_static: bool) -> impl Iterator<Item = &dyn Meter> {
    std::iter::once(meter).chain(meter.manifests().filter(|_| is_static))
}

/// Counts nothing, and its clock stands still.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmetered;

impl Meter for Unmetered {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}
