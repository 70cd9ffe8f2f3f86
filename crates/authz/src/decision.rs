//! The results of authorization: [`AuthorizerDecision`], and [`Permit`] for allowed requests.

use std::fmt;

use api::Status;
use authn::Caller;
use value::Str;

use crate::attributes::AuthorizationAttributes;
use crate::forbidden::forbidden;
use crate::rbac::AllowingBinding;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// Denies regardless of other authorizers.
    Deny,
    /// If no authorizer allows the request, it is denied.
    NoOpinion,
}

impl Decision {
    /// The `decision` label in metrics: `allowed`, `denied`, `no-opinion`.
    pub fn label(self) -> &'static str {
        match self {
            Decision::Allow => "allowed",
            Decision::Deny => "denied",
            Decision::NoOpinion => "no-opinion",
        }
    }
}

/// The reason of a decision. It is formatted only when it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DecisionReason {
    #[default]
    None,
    Text(Str),
    /// The role and binding that allowed the request.
    Granted(AllowingBinding),
}

impl DecisionReason {
    pub fn is_empty(&self) -> bool {
        match self {
            DecisionReason::None => true,
            DecisionReason::Text(text) => text.is_empty(),
            DecisionReason::Granted(_) => false,
        }
    }
}

impl fmt::Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecisionReason::None => Ok(()),
            DecisionReason::Text(text) => f.write_str(text),
            DecisionReason::Granted(granted) => write!(f, "RBAC: allowed by {granted}"),
        }
    }
}

/// A decision with its reason and the error that occurred, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerDecision {
    pub decision: Decision,
    pub reason: DecisionReason,
    /// An error does not invalidate the decision.
    pub error: Option<String>,
}

impl AuthorizerDecision {
    pub fn allow(reason: DecisionReason) -> Self {
        AuthorizerDecision { decision: Decision::Allow, reason, error: None }
    }

    pub fn deny(reason: impl Into<Str>) -> Self {
        AuthorizerDecision {
            decision: Decision::Deny,
            reason: DecisionReason::Text(reason.into()),
            error: None,
        }
    }

    /// The reason for a decision other than allow; an error comes first.
    pub fn why(&self) -> String {
        let reason = self.reason.to_string();
        match &self.error {
            Some(error) if reason.is_empty() => error.clone(),
            Some(error) => format!("{error}: {reason}"),
            None => reason,
        }
    }

    /// The reason may be empty.
    pub fn no_opinion(reason: impl Into<Str>) -> Self {
        AuthorizerDecision {
            decision: Decision::NoOpinion,
            reason: DecisionReason::Text(reason.into()),
            error: None,
        }
    }
}

/// Proof that the chain allowed a request. Only the chain can create one.
///
/// ```compile_fail,E0624
/// fn forged(caller: authn::Caller, attributes: authz::AuthorizationAttributes, reason: authz::DecisionReason) -> authz::Permit {
///     authz::Permit::new(caller, attributes, reason)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Permit {
    caller: Caller,
    attributes: AuthorizationAttributes,
    reason: DecisionReason,
}

impl Permit {
    pub(crate) fn new(caller: Caller, attributes: AuthorizationAttributes, reason: DecisionReason) -> Self {
        Permit { caller, attributes, reason }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn attributes(&self) -> &AuthorizationAttributes {
        &self.attributes
    }

    pub fn reason(&self) -> &DecisionReason {
        &self.reason
    }
}

/// The request is not allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Denial {
    /// The client gets a 403.
    Denied {
        /// Either `Deny` or `NoOpinion`.
        decision: Decision,
        /// The response to the client.
        status: Status,
        /// The reason alone, for the audit event.
        reason: String,
    },
    /// No authorizer allowed the request and one failed: 500 as plain text, `Internal Server Error: "URI":
    /// error`.
    Failed { error: String },
}

impl Denial {
    pub(crate) fn of(
        user: &authn::User,
        attributes: &AuthorizationAttributes,
        answer: AuthorizerDecision,
    ) -> Self {
        if let Some(error) = answer.error {
            return Denial::Failed { error };
        }
        let reason = answer.reason.to_string();
        Denial::Denied {
            decision: answer.decision,
            status: forbidden(&user.name, attributes, &reason),
            reason,
        }
    }
}
