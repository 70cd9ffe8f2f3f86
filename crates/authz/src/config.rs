//! The authorization configuration file: bytes → [`Configuration`].
//!
//! Reading is strict: unknown and repeated fields and wrong types are refused, and every rule that is broken is reported, not
//! the first alone. The words are Kubernetes'; [`Refused::located`] adds where in the file, and how to fix it where that is
//! known.

mod decode;
mod flags;
mod validate;

use std::fmt;
use std::time::Duration;

use value::yaml::Position;
use value::{Str, yaml};

pub use flags::Flags;

use crate::conditions::{Compiler, Conditions};

/// The types of authorizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuthorizerType {
    /// A policy file.
    Abac,
    /// Everything is allowed.
    AlwaysAllow,
    /// Nothing is.
    AlwaysDeny,
    /// Nodes.
    Node,
    /// Roles and bindings.
    Rbac,
    /// A remote service.
    Webhook,
}

impl AuthorizerType {
    /// All of them, by name.
    pub const ALL: [AuthorizerType; 6] = [
        AuthorizerType::Abac,
        AuthorizerType::AlwaysAllow,
        AuthorizerType::AlwaysDeny,
        AuthorizerType::Node,
        AuthorizerType::Rbac,
        AuthorizerType::Webhook,
    ];

    /// The name in the file and in `--authorization-mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            AuthorizerType::Abac => "ABAC",
            AuthorizerType::AlwaysAllow => "AlwaysAllow",
            AuthorizerType::AlwaysDeny => "AlwaysDeny",
            AuthorizerType::Node => "Node",
            AuthorizerType::Rbac => "RBAC",
            AuthorizerType::Webhook => "Webhook",
        }
    }

    /// The type by its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The name an authorizer of this type must have in the chain, webhooks aside.
    pub fn step_name(self) -> Str {
        self.as_str().to_lowercase().into()
    }
}

/// A chain as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The authorizers in order.
    pub authorizers: Vec<ConfiguredAuthorizer>,
}

/// One authorizer as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredAuthorizer {
    /// Its type.
    pub kind: AuthorizerType,
    /// Its name in the chain.
    pub name: Str,
    /// How to ask it, if it is a webhook.
    pub webhook: Option<WebhookConfiguration>,
}

/// How to ask a webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookConfiguration {
    /// How long an allow is kept; `None` if it is not.
    pub authorized_ttl: Option<Duration>,
    /// How long any other answer is kept; `None` if it is not.
    pub unauthorized_ttl: Option<Duration>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// The version of the review that is sent.
    pub version: ReviewVersion,
    /// What a failure means.
    pub failure_policy: FailurePolicy,
    /// Where the kubeconfig is that says where and as whom to ask.
    pub kubeconfig: Str,
    /// When to ask at all.
    pub conditions: Conditions,
}

/// The versions of a SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authorization.k8s.io/v1`.
    V1,
    /// `authorization.k8s.io/v1beta1`.
    V1Beta1,
}

/// What it means when a webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Go on with the next authorizer.
    NoOpinion,
    /// Refuse the request.
    Deny,
}

/// What reading a configuration needs from outside.
pub struct Environment<'a> {
    /// Compiles match conditions.
    pub compiler: &'a dyn Compiler,
    /// Whether a kubeconfig can be used; otherwise why not (`error loading file: …`, `must be a regular file`).
    pub kubeconfig: &'a dyn Fn(&str) -> Result<(), String>,
    /// On reload: the types besides Webhook that were there at start, all of which must stay.
    pub required: &'a [AuthorizerType],
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    summary: String,
    problems: Vec<Problem>,
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What.
    pub message: String,
    /// Where in the file.
    pub position: Option<Position>,
    /// How to fix it, where that is known.
    pub hint: Option<String>,
}

/// A configuration that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The chain.
    pub configuration: Configuration,
    /// What is valid and probably does not mean what its author thinks.
    pub warnings: Vec<Problem>,
}

/// The words with which a configuration file beside the flags it stands for is refused.
pub const CONFLICT: &str = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";

/// Reads a configuration file.
pub fn load(bytes: &[u8], environment: &Environment<'_>) -> Result<Checked, Refused> {
    let document = if bytes.is_empty() {
        None
    } else {
        Some(yaml::document(bytes).map_err(|error| Refused::unreadable(bytes, error))?)
    };
    let decoded = decode::configuration(bytes, document.as_ref())?;
    validate::configuration(decoded, document.as_ref().map(|d| &d.spans), environment).map_err(
        |mut refused| {
            for problem in &mut refused.problems {
                let first = problem.position.and_then(|position| unquoted(bytes, position));
                let hints: Vec<String> =
                    first.map(str::to_owned).into_iter().chain(problem.hint.take()).collect();
                problem.hint = (!hints.is_empty()).then(|| hints.join("; "));
            }
            refused
        },
    )
}

/// The hint for a match condition that YAML takes for something else, as the examples of KEP-3221 print it.
fn unquoted(bytes: &[u8], position: Position) -> Option<&'static str> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().nth(position.line.checked_sub(1)?)?;
    let expression = line.trim_start().trim_start_matches("- ").strip_prefix("expression:")?;
    expression
        .trim_start()
        .starts_with(['!', '{', '[', '&', '*'])
        .then_some("quote the expression: YAML gives its first character a meaning of its own")
}

impl Refused {
    /// Nothing could be read, because of these.
    fn load(problems: Vec<Problem>, summary: &str) -> Self {
        Refused {
            summary: format!("failed to load AuthorizationConfiguration from file: {summary}"),
            problems,
        }
    }

    fn unreadable(bytes: &[u8], error: yaml::Error) -> Self {
        let hint = unquoted(bytes, error.position).map(str::to_owned);
        // A file that begins with a brace is JSON, and Go fails on it where it looks for the kind.
        let is_json = bytes.trim_ascii_start().starts_with(b"{");
        let message = if is_json {
            format!("couldn't get version/kind; json parse error: {}", error.message)
        } else {
            error.message
        };
        let summary = message.clone();
        Self::load(vec![Problem { message, position: Some(error.position), hint }], &summary)
    }

    /// All problems.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// One line per problem: `FILE:LINE:COLUMN: message (hint)`.
    pub fn located(&self, file: &str) -> Vec<String> {
        self.problems.iter().map(|problem| problem.located(file)).collect()
    }
}

impl Problem {
    /// One line: `FILE:LINE:COLUMN: message (hint)`.
    pub fn located(&self, file: &str) -> String {
        let place = self.position.map(|p| format!(":{p}")).unwrap_or_default();
        let hint = self.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{file}{place}: {}{hint}", self.message)
    }
}

/// As kube-apiserver says it.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests;
