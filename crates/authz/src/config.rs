//! Parses the authorization configuration file into an [`AuthorizationConfiguration`].
//!
//! Parsing is strict: unknown fields, repeated fields and wrong types are errors, and all violations are
//! reported, not only the first. Messages are kube-apiserver's; [`AuthorizationConfigError::located`] adds file positions
//! and hints.

mod decode;
mod flags;
mod validate;

use std::fmt;
use std::time::Duration;

use value::yaml::Position;
use value::{Str, yaml};

pub use flags::Flags;

use crate::conditions::{ConditionCompiler, Conditions};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuthorizerType {
    Abac,
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Webhook,
}

impl AuthorizerType {
    /// All types, sorted by name.
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

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The name that an authorizer of this type must have in the chain. Does not apply to webhooks.
    pub fn step_name(self) -> Str {
        self.as_str().to_lowercase().into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationConfiguration {
    /// In the order in which they are asked.
    pub authorizers: Vec<ConfiguredAuthorizer>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredAuthorizer {
    pub kind: AuthorizerType,
    /// The unique name in the chain.
    pub name: Str,
    /// Set for webhooks only.
    pub webhook: Option<WebhookConfiguration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WebhookConfiguration {
    /// How long an allow is cached; `None` disables caching.
    pub authorized_ttl: Option<Duration>,
    /// How long other decisions are cached; `None` disables caching.
    pub unauthorized_ttl: Option<Duration>,
    pub timeout: Duration,
    pub version: SubjectAccessReviewVersion,
    pub failure_policy: FailurePolicy,
    /// Path of the kubeconfig with address and credentials.
    pub kubeconfig: Str,
    /// The match conditions; the webhook is called only if all are true.
    pub conditions: Conditions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectAccessReviewVersion {
    V1,
    V1Beta1,
}

impl SubjectAccessReviewVersion {
    pub fn as_str(self) -> &'static str {
        match self {
            SubjectAccessReviewVersion::V1 => "v1",
            SubjectAccessReviewVersion::V1Beta1 => "v1beta1",
        }
    }
}

/// The decision if a webhook cannot be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Ask the next authorizer.
    NoOpinion,
    Deny,
}

/// The compiler and checks that [`load`] needs from its caller.
pub struct Environment<'a> {
    pub compiler: &'a dyn ConditionCompiler,
    /// Checks whether a kubeconfig can be used. The error is a message (`error loading file: …`, `must be a
    /// regular file`).
    pub kubeconfig: &'a dyn Fn(&str) -> Result<(), String>,
    /// On reload: the authorizer types other than Webhook that were configured at startup. All of them must
    /// remain.
    pub required: &'a [AuthorizerType],
}

/// The configuration was rejected. Its text is kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfigError {
    summary: String,
    problems: Vec<ConfigProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub message: String,
    pub position: Option<Position>,
    pub hint: Option<String>,
}

/// A valid configuration with its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedConfiguration {
    pub configuration: AuthorizationConfiguration,
    /// Settings that are valid but probably not intended.
    pub warnings: Vec<ConfigProblem>,
}

/// kube-apiserver's message if both the file and the flags that it replaces are set.
pub const CONFLICT: &str = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";

/// Parses and validates a configuration file.
pub fn load(
    bytes: &[u8],
    environment: &Environment<'_>,
) -> Result<CheckedConfiguration, AuthorizationConfigError> {
    let document = if bytes.is_empty() {
        None
    } else {
        Some(yaml::document(bytes).map_err(|error| AuthorizationConfigError::unreadable(bytes, error))?)
    };
    let decoded = decode::configuration(bytes, document.as_ref())?;
    validate::configuration(decoded, document.as_ref().map(|d| &d.spans), environment).map_err(
        |mut refused| {
            for problem in &mut refused.problems {
                let first = problem.position.and_then(|position| unquoted_hint(bytes, position));
                let hints: Vec<String> =
                    first.map(str::to_owned).into_iter().chain(problem.hint.take()).collect();
                problem.hint = (!hints.is_empty()).then(|| hints.join("; "));
            }
            refused
        },
    )
}

/// The hint for an unquoted match condition that YAML does not read as a string. The examples of KEP-3221
/// have them.
fn unquoted_hint(bytes: &[u8], position: Position) -> Option<&'static str> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().nth(position.line.checked_sub(1)?)?;
    let expression = line.trim_start().trim_start_matches("- ").strip_prefix("expression:")?;
    expression
        .trim_start()
        .starts_with(['!', '{', '[', '&', '*'])
        .then_some("quote the expression: YAML gives its first character a meaning of its own")
}

impl AuthorizationConfigError {
    /// A file that could not be decoded.
    fn load(problems: Vec<ConfigProblem>, summary: &str) -> Self {
        AuthorizationConfigError {
            summary: format!("failed to load AuthorizationConfiguration from file: {summary}"),
            problems,
        }
    }

    fn unreadable(bytes: &[u8], error: yaml::Error) -> Self {
        let hint = unquoted_hint(bytes, error.position).map(str::to_owned);
        // A file that begins with `{` is JSON. Go fails on it when it looks for the kind.
        let is_json = bytes.trim_ascii_start().starts_with(b"{");
        let message = if is_json {
            format!("couldn't get version/kind; json parse error: {}", error.message)
        } else {
            error.message
        };
        let summary = message.clone();
        Self::load(vec![ConfigProblem { message, position: Some(error.position), hint }], &summary)
    }

    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// One line per problem: `FILE:LINE:COLUMN: message (hint)`.
    pub fn located(&self, file: &str) -> Vec<String> {
        self.problems.iter().map(|problem| problem.located(file)).collect()
    }
}

impl ConfigProblem {
    /// One line: `FILE:LINE:COLUMN: message (hint)`.
    pub fn located(&self, file: &str) -> String {
        let position = self.position.map(|p| format!(":{p}")).unwrap_or_default();
        let hint = self.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{file}{position}: {}{hint}", self.message)
    }
}

/// The message of kube-apiserver.
impl fmt::Display for AuthorizationConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

impl std::error::Error for AuthorizationConfigError {}

#[cfg(test)]
mod tests;
