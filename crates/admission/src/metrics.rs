//! Admission metrics. The server stores the counters under Kubernetes' metric names. The clock is here, too,
//! because this crate never reads one itself.

use std::time::Duration;

use crate::{Operation, PluginName};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdmissionPhase {
    Mutating,
    Validating,
}

impl AdmissionPhase {
    /// The `type` label of step and plugin metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            AdmissionPhase::Mutating => "admit",
            AdmissionPhase::Validating => "validate",
        }
    }

    /// The `type` label of webhook metrics, where Kubernetes spells the validating phase differently.
    pub fn webhook_label(self) -> &'static str {
        match self {
            AdmissionPhase::Mutating => "admit",
            AdmissionPhase::Validating => "validating",
        }
    }
}

/// A plugin's index in the list of all plugins and its name. The index saves a lookup by name for every
/// measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginId {
    pub position: usize,
    pub name: PluginName,
}

/// The reason for a rejection by a webhook or for lack of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookRejection {
    Denied,
    /// The call failed, or the response was invalid.
    Calling,
    /// The response was valid, but the server could not apply it.
    Internal,
}

impl WebhookRejection {
    /// The value of the `error_type` label.
    pub fn as_str(self) -> &'static str {
        match self {
            WebhookRejection::Denied => "no_error",
            WebhookRejection::Calling => "calling_webhook_error",
            WebhookRejection::Internal => "apiserver_internal_error",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct MatchConditionLabels<'a> {
    /// The name of the webhook or policy.
    pub name: &'a str,
    /// Either `webhook` or `policy`.
    pub kind: &'a str,
    /// The phase, as spelled in this metric family.
    pub phase: &'a str,
    pub operation: Operation,
}

/// The labels that metrics of webhook calls share.
#[derive(Clone, Copy, Debug)]
pub struct WebhookLabels<'a> {
    pub name: &'a str,
    pub phase: AdmissionPhase,
    pub operation: Operation,
}

/// The outcome of a policy's expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyErrorType {
    None,
    Compile,
    /// The cost budget was exceeded.
    Budget,
    /// Evaluation failed, or the expression denied: Kubernetes uses one label for both.
    Invalid,
}

impl PolicyErrorType {
    /// The value of the `error_type` label.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyErrorType::None => "no_error",
            PolicyErrorType::Compile => "compile_error",
            PolicyErrorType::Budget => "out_of_budget",
            PolicyErrorType::Invalid => "invalid_error",
        }
    }

    /// Classifies by the message, as Kubernetes does.
    pub(crate) fn from_message(message: &str) -> Self {
        if message.starts_with("compilation") {
            PolicyErrorType::Compile
        } else if message.starts_with("validation failed due to running out of cost budget") {
            PolicyErrorType::Budget
        } else {
            PolicyErrorType::Invalid
        }
    }
}

/// Records admission metrics. All methods except [`AdmissionMetrics::now`] default to doing nothing.
pub trait AdmissionMetrics: Send + Sync {
    /// Monotonic time since an arbitrary but fixed point.
    fn now(&self) -> Duration;

    /// Records decisions of static manifests a second time, in metrics of their own.
    fn static_manifests(&self) -> Option<&dyn AdmissionMetrics> {
        None
    }

    fn phase(&self, phase: AdmissionPhase, operation: Operation, rejected: bool, took: Duration) {
        let _ = (phase, operation, rejected, took);
    }

    fn plugin(
        &self,
        link: PluginId,
        phase: AdmissionPhase,
        operation: Operation,
        rejected: bool,
        took: Duration,
    ) {
        let _ = (link, phase, operation, rejected, took);
    }

    /// A webhook was called. `code` is 200 on success.
    fn webhook(&self, webhook: &WebhookLabels<'_>, code: u16, rejected: bool, took: Duration) {
        let _ = (webhook, code, rejected, took);
    }

    /// A webhook rejected a request, or its failure did.
    fn webhook_rejected(&self, webhook: &WebhookLabels<'_>, why: WebhookRejection, code: u16) {
        let _ = (webhook, why, code);
    }

    /// A webhook call failed, and `failurePolicy: Ignore` admitted the request.
    fn webhook_failed_open(&self, name: &str, phase: AdmissionPhase) {
        let _ = (name, phase);
    }

    fn conditions_evaluated(&self, conditions: &MatchConditionLabels<'_>, took: Duration) {
        let _ = (conditions, took);
    }

    fn condition_failed(&self, conditions: &MatchConditionLabels<'_>) {
        let _ = conditions;
    }

    /// A validation was evaluated. `action` is the validation action that was taken.
    fn policy_checked(
        &self,
        policy: &str,
        binding: &str,
        error: PolicyErrorType,
        action: &str,
        took: Duration,
    ) {
        let _ = (policy, binding, error, action, took);
    }

    fn mutation_checked(&self, policy: &str, binding: &str, error: PolicyErrorType, took: Duration) {
        let _ = (policy, binding, error, took);
    }

    /// Match conditions excluded the request from their webhook.
    fn conditions_excluded(&self, conditions: &MatchConditionLabels<'_>) {
        let _ = conditions;
    }
}

/// The metrics that record a decision: `metrics`, and for static manifests also theirs.
pub(crate) fn metrics_for(
    metrics: &dyn AdmissionMetrics,
    is_static: bool,
) -> impl Iterator<Item = &dyn AdmissionMetrics> {
    std::iter::once(metrics).chain(metrics.static_manifests().filter(|_| is_static))
}

/// Records no metrics; its clock is always zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl AdmissionMetrics for NoMetrics {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}
