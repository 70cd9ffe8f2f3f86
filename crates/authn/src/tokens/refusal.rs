//! [`TokenRequestRefusal`]: a rejected TokenRequest, with a response for the client and a cause for
//! operators.

use std::fmt;

use api::Status;

/// The response to the client, and the cause for the log and the audit event, which may say more than the response.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRequestRefusal {
    pub status: Status,
    /// Set if a token for a webhook was rejected by a rule of this crate.
    pub cause: Option<RefusalCause>,
}

/// The cause of a rejected token for a webhook. It may name stored objects, so clients must not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCause {
    pub reason: RefusalReason,
    /// The expected and the actual value.
    pub detail: String,
}

/// The rules for webhook tokens, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    FeatureGateDisabled,
    /// The audience is one of the API server's own.
    ApiServerAudience,
    /// The service account lacks the permission `attest` for the API group.
    NoAttestPermission,
    ConfigurationNotFound,
    ConfigurationDeleting,
    /// The reference has another uid than the stored webhook configuration.
    UidMismatch,
    /// No APIService serves the API group. Checked only in the KEP's dialect.
    ApiServiceNotFound,
    /// No webhook of the configuration has the audience.
    AudienceMismatch,
    /// The webhooks with the audience have no rule for the API group.
    GroupNotInRules,
}

impl RefusalReason {
    /// The name in the log and in audit events.
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

impl TokenRequestRefusal {
    pub(super) fn new(status: Status, reason: RefusalReason, detail: impl Into<String>) -> Self {
        TokenRequestRefusal { status, cause: Some(RefusalCause { reason, detail: detail.into() }) }
    }
}

impl From<Status> for TokenRequestRefusal {
    fn from(status: Status) -> Self {
        TokenRequestRefusal { status, cause: None }
    }
}

impl fmt::Display for RefusalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.detail)
    }
}
