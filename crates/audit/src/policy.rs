//! The audit policy: selects which requests are recorded and at which level.
//!
//! The first matching rule applies; requests without a matching rule are not recorded. Rules depend only on
//! the request and its authenticated user, so the policy is evaluated once per request, after authentication.

mod decode;

use api::non_resource_urls::non_resource_url_matches;
use authn::User;
use requests::request_info::RequestInfo;
use value::Str;

/// Amount of data recorded about a request; higher levels include the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No event is recorded.
    None,
    /// User, request, time and outcome.
    Metadata,
    /// Metadata and the request body.
    Request,
    /// Metadata, the request body and the response body.
    RequestResponse,
}

impl Level {
    /// All levels in ascending order.
    pub const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    /// The name in policies, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// Points of a request at which an event can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditStage {
    /// After authentication, before any processing.
    RequestReceived,
    /// Before the headers of a long-running response are sent.
    ResponseStarted,
    ResponseComplete,
    /// The request handler panicked.
    Panic,
}

impl AuditStage {
    /// All stages in chronological order, then `Panic`.
    pub const ALL: [AuditStage; 4] = [
        AuditStage::RequestReceived,
        AuditStage::ResponseStarted,
        AuditStage::ResponseComplete,
        AuditStage::Panic,
    ];

    /// The name in policies and events.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditStage::RequestReceived => "RequestReceived",
            AuditStage::ResponseStarted => "ResponseStarted",
            AuditStage::ResponseComplete => "ResponseComplete",
            AuditStage::Panic => "Panic",
        }
    }
}

/// Result of evaluating the policy for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDecision {
    pub level: Level,
    /// Stages at which no event is written.
    pub omit_stages: Vec<AuditStage>,
    /// Omit `metadata.managedFields` from recorded objects.
    pub omit_managed_fields: bool,
}

/// A validated audit policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AuditRule {
    decision: AuditDecision,
    conditions: AuditConditions,
}

/// The requests that a rule applies to. All conditions must match, and an empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AuditConditions {
    users: Vec<Str>,
    user_groups: Vec<Str>,
    verbs: Vec<Str>,
    resources: Vec<GroupResources>,
    namespaces: Vec<Str>,
    paths: Vec<Str>,
}

/// Resources of one API group, as in `audit.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupResources {
    group: Str,
    resources: Vec<Str>,
    names: Vec<Str>,
}

impl AuditPolicy {
    /// Parses and validates a policy. Errors have the text of kube-apiserver.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        decode::policy(bytes)
    }

    /// Evaluates the rules; `user` is `None` if authentication failed.
    pub fn evaluate(&self, user: Option<&User>, info: &RequestInfo) -> AuditDecision {
        match self.rules.iter().find(|rule| rule.conditions.match_request(user, info)) {
            Some(rule) => rule.decision.clone(),
            None => AuditDecision { level: Level::None, omit_stages: Vec::new(), omit_managed_fields: false },
        }
    }
}

impl AuditConditions {
    fn match_request(&self, user: Option<&User>, info: &RequestInfo) -> bool {
        let by_user = self.users.is_empty() || user.is_some_and(|user| self.users.contains(&user.name));
        let by_group = self.user_groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| self.user_groups.contains(group)));
        let by_verb = self.verbs.is_empty() || self.verbs.contains(&info.verb);
        if !(by_user && by_group && by_verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || self.namespaces.contains(&info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|r| r.matches(info)));
        }
        self.paths.is_empty()
            || !info.is_resource && self.paths.iter().any(|spec| non_resource_url_matches(spec, &info.path))
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != "*" && self.group != info.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.names.is_empty() || self.names.contains(&info.name);
        named && self.resources.iter().any(|resource| is_resource(resource, info))
    }
}

/// Matches `pods`, `pods/log`, `*`, `*/log` and `pods/*` against the request's resource and subresource.
fn is_resource(spec: &str, info: &RequestInfo) -> bool {
    let (resource, subresource) = (info.resource.as_str(), info.subresource.as_str());
    if spec == "*" || spec.strip_suffix("/*") == Some(resource) {
        return true;
    }
    if subresource.is_empty() {
        return spec == resource;
    }
    spec.strip_prefix("*/") == Some(subresource)
        || spec.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource)
}

#[cfg(test)]
mod tests;
