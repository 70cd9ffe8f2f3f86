//! The audit policy: which requests are recorded, and how much of them.
//!
//! The first rule that matches a request decides; what no rule matches is not recorded. Matching looks at the request and its
//! authenticated user alone, so it is made once, before anything else is known.

mod decode;

use authn::User;
use value::Str;

use crate::request_info::RequestInfo;

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what, when and with which outcome.
    Metadata,
    /// And what the client sent.
    Request,
    /// And what it was answered.
    RequestResponse,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    /// The word in policies, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// The moments of a request at which an event can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The caller is known, nothing has been done.
    RequestReceived,
    /// The headers of an answer that goes on for long are sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler failed in a way that it should not.
    Panic,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    /// The word in policies and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// What the policy says about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How much is recorded.
    pub level: Level,
    /// Which moments are not.
    pub omit_stages: Vec<Stage>,
    /// Whether `metadata.managedFields` are left out of recorded objects.
    pub omit_managed_fields: bool,
}

/// A policy that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// One rule: all that it names must match. A list that is empty matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    verdict: Verdict,
    users: Vec<Str>,
    user_groups: Vec<Str>,
    verbs: Vec<Str>,
    resources: Vec<GroupResources>,
    namespaces: Vec<Str>,
    paths: Vec<Str>,
}

/// Resources of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupResources {
    group: Str,
    resources: Vec<Str>,
    names: Vec<Str>,
}

impl Policy {
    /// Reads a policy, strictly. The error is in Kubernetes' words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        decode::policy(bytes)
    }

    /// What is recorded of a request of this user; there is none where authentication failed.
    pub fn judge(&self, user: Option<&User>, info: &RequestInfo) -> Verdict {
        match self.rules.iter().find(|rule| rule.matches(user, info)) {
            Some(rule) => rule.verdict.clone(),
            None => Verdict { level: Level::None, omit_stages: Vec::new(), omit_managed_fields: false },
        }
    }
}

impl Rule {
    fn matches(&self, user: Option<&User>, info: &RequestInfo) -> bool {
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
        self.paths.is_empty() || !info.is_resource && self.paths.iter().any(|spec| covers(spec, &info.path))
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

/// Whether `pods`, `pods/log`, `*`, `*/log` or `pods/*` is what a request is about.
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

/// Whether a path is the one of a rule, or below one that ends in `*`.
fn covers(spec: &str, path: &str) -> bool {
    spec == "*" || spec == path || spec.ends_with('*') && path.starts_with(spec.trim_end_matches('*'))
}

#[cfg(test)]
mod tests;
