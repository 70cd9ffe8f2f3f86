//! [`Refusal`]: why a request for a token is refused, for the client and for operators.

use std::fmt;

use api::Status;

/// A refused `TokenRequest`: the answer for the client and, where that answer must not say it, the cause for the log and the
/// audit event.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The answer for the client.
    pub status: Status,
    /// Why a token for a webhook was refused, if the decision was made here.
    pub cause: Option<RefusalCause>,
}

/// Why a token for a webhook was refused. It names stored objects, so clients must not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCause {
    /// The rule that was broken.
    pub reason: RefusalReason,
    /// The expected and the actual value, for the log and the audit event.
    pub detail: String,
}

/// Why a token for a webhook was refused, in the order in which the rules are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The feature gate is off.
    FeatureGateDisabled,
    /// The audience is one of the API server's own.
    ApiServerAudience,
    /// The service account lacks the permission `attest` for the API group.
    NoAttestPermission,
    /// There is no webhook configuration of that kind and name.
    ConfigurationNotFound,
    /// The webhook configuration is being deleted.
    ConfigurationDeleting,
    /// The webhook configuration has another uid than the reference.
    UidMismatch,
    /// No APIService serves the API group.
    ApiServiceNotFound,
    /// No webhook of the configuration has the audience.
    AudienceMismatch,
    /// The webhooks with the audience have no rule for the API group.
    GroupNotInRules,
}

impl RefusalReason {
    /// Its name in the log and in audit events.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalReason::FeatureGateDisabled => "FeatureGateDisabled",
            RefusalReason::ApiServerAudience => "APIServerAudience",
            RefusalReason::NoAttestPermission => "NoAttestPermission",
            RefusalReason::ConfigurationNotFound => "ConfigurationNotFound",
            RefusalReason::ConfigurationDeleting => "ConfigurationDeleting",
            RefusalReason::UidMismatch => "UIDMismatch",
            RefusalReason::ApiServiceNotFound => "APIServiceNotFound",
            RefusalReason::AudienceMismatch => "AudienceMismatch",
            RefusalReason::GroupNotInRules => "GroupNotInRules",
        }
    }
}

impl Refusal {
    pub(super) fn new(status: Status, reason: RefusalReason, detail: impl Into<String>) -> Self {
        Refusal { status, cause: Some(RefusalCause { reason, detail: detail.into() }) }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Refusal { status, cause: None }
    }
}

impl fmt::Display for RefusalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.detail)
    }
}
