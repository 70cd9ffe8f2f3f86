//! What comes out of a chain: an [`Answer`], and for a request that is allowed a [`Permit`].

use std::fmt;

use api::Status;
use authn::Caller;
use value::Str;

use crate::attributes::Attributes;
use crate::forbidden::forbidden;
use crate::rbac::Granted;

/// What an authorizer, or the chain, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// No, whatever others say.
    Deny,
    /// Not for me to say. From the chain as a whole it is a no.
    NoOpinion,
}

impl Decision {
    /// The label of metrics: `allowed`, `denied`, `no-opinion`.
    pub fn label(self) -> &'static str {
        match self {
            Decision::Allow => "allowed",
            Decision::Deny => "denied",
            Decision::NoOpinion => "no-opinion",
        }
    }
}

/// Why; put into words only when somebody reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// None given.
    #[default]
    None,
    /// In an authorizer's words.
    Text(Str),
    /// A role that somebody was bound to.
    Granted(Granted),
}

impl Reason {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        match self {
            Reason::None => true,
            Reason::Text(text) => text.is_empty(),
            Reason::Granted(_) => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Text(text) => f.write_str(text),
            Reason::Granted(granted) => write!(f, "RBAC: allowed by {granted}"),
        }
    }
}

/// A decision, why, and what went wrong on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
    /// What went wrong; a decision may stand all the same.
    pub error: Option<String>,
}

impl Answer {
    /// Yes, for a reason.
    pub fn allow(reason: Reason) -> Self {
        Answer { decision: Decision::Allow, reason, error: None }
    }

    /// No, for a reason.
    pub fn deny(reason: impl Into<Str>) -> Self {
        Answer { decision: Decision::Deny, reason: Reason::Text(reason.into()), error: None }
    }

    /// Why it is no yes, with what went wrong first.
    pub fn why(&self) -> String {
        let reason = self.reason.to_string();
        match &self.error {
            Some(error) if reason.is_empty() => error.clone(),
            Some(error) => format!("{error}: {reason}"),
            None => reason,
        }
    }

    /// Not for me to say, for a reason that may be empty.
    pub fn no_opinion(reason: impl Into<Str>) -> Self {
        Answer { decision: Decision::NoOpinion, reason: Reason::Text(reason.into()), error: None }
    }
}

/// Proof that the chain allowed a caller something. Only the chain makes one.
#[derive(Clone, Debug)]
pub struct Permit {
    caller: Caller,
    attributes: Attributes,
    reason: Reason,
}

impl Permit {
    pub(crate) fn new(caller: Caller, attributes: Attributes, reason: Reason) -> Self {
        Permit { caller, attributes, reason }
    }

    /// Who may.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}

/// Why a request may not go on.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// 403, in Kubernetes' words.
    Denied {
        /// A deny, or nobody's opinion.
        decision: Decision,
        /// The answer to the client.
        status: Status,
        /// The reason alone, for audit.
        reason: String,
    },
    /// Nobody allowed it and somebody failed: 500 as plain text, `Internal Server Error: "URI": error`.
    Failed {
        /// What failed.
        error: String,
    },
}

impl Refusal {
    pub(crate) fn of(user: &authn::User, attributes: &Attributes, answer: Answer) -> Self {
        if let Some(error) = answer.error {
            return Refusal::Failed { error };
        }
        let reason = answer.reason.to_string();
        Refusal::Denied {
            decision: answer.decision,
            status: forbidden(&user.name, attributes, &reason),
            reason,
        }
    }
}
