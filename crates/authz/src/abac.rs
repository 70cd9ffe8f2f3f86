//! The ABAC authorizer: a policy file with one JSON object per line.

use api::field::quote;
use authn::{User, names};
use value::{Str, Value, json, yaml};

use crate::attributes::AuthorizationAttributes;
use crate::decision::{AuthorizerDecision, DecisionReason};
use crate::rbac::{PolicyRule, SubjectRules};

/// The policies of a file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbacPolicies {
    policies: Vec<AbacPolicy>,
}

/// One line of the file. In the fields for resources, `*` matches everything and an empty string only itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AbacPolicy {
    user: Str,
    group: Str,
    readonly: bool,
    api_group: Str,
    resource: Str,
    namespace: Str,
    path: Str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error reading policy file {path}, line {line}: {text}: {why}")]
pub struct PolicyFileError {
    path: String,
    line: usize,
    text: String,
    why: String,
}

/// Lines without apiVersion and kind are read as [`OLDEST`].
const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const OLDEST: &str = "abac.authorization.kubernetes.io/v0";
/// The location of Go's scheme for these kinds, which is part of its error messages.
const SCHEME: &str = "pkg/apis/abac/register.go:33";
/// How Go prints the type with which it reads an object's kind.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

impl AbacPolicies {
    /// Parses a policy file; `path` is used in messages. The flag is true if the file has lines without a
    /// version, which should cause a warning.
    pub fn parse(path: &str, text: &str) -> Result<(Self, bool), PolicyFileError> {
        let mut policies = Vec::new();
        let mut unversioned = false;
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let fail = |why: String| PolicyFileError {
                path: path.to_owned(),
                line: index + 1,
                text: line.to_owned(),
                why,
            };
            let object = read(line).map_err(fail)?;
            let meta = |field: &str| object.str_at(&[field]).unwrap_or_default();
            let policy = match (meta("apiVersion"), meta("kind")) {
                (VERSION, "Policy") => AbacPolicy::current(&object),
                (OLDEST, "Policy") => AbacPolicy::oldest(&object),
                // A version without a kind, or the reverse, counts as none.
                ("", _) | (_, "") => {
                    unversioned = true;
                    AbacPolicy::oldest(&object)
                }
                (version, kind) => Err(format!(
                    "no kind {} is registered for version {} in scheme {}",
                    quote(kind),
                    quote(version),
                    quote(SCHEME)
                )),
            };
            policies.push(policy.map_err(fail)?);
        }
        Ok((AbacPolicies { policies }, unversioned))
    }

    /// Allows what any policy matches; otherwise has no opinion.
    pub fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        if self.policies.iter().any(|policy| policy.matches(user, attributes)) {
            return AuthorizerDecision::allow(DecisionReason::None);
        }
        AuthorizerDecision::no_opinion("No policy matched.")
    }

    pub fn rules_for(&self, user: &User, namespace: &str) -> SubjectRules {
        let mut rules = Vec::new();
        for policy in &self.policies {
            if !policy.is_about(user) || !any_or(&policy.namespace, namespace) {
                continue;
            }
            let verbs: Vec<Str> = if policy.readonly {
                ["get", "list", "watch"].map(Str::new_static).to_vec()
            } else {
                vec![Str::new_static("*")]
            };
            if !policy.resource.is_empty() {
                rules.push(PolicyRule {
                    verbs: verbs.clone(),
                    groups: vec![policy.api_group.clone()],
                    resources: vec![policy.resource.clone()],
                    ..PolicyRule::default()
                });
            }
            if !policy.path.is_empty() {
                rules.push(PolicyRule { verbs, urls: vec![policy.path.clone()], ..PolicyRule::default() });
            }
        }
        SubjectRules { rules, ..SubjectRules::default() }
    }
}

/// Parses a line as JSON if it begins with `{`, else as YAML, like Go.
fn read(line: &str) -> Result<Value, String> {
    let object = if line.trim_start().starts_with('{') {
        json::parse(line.as_bytes())
            .map_err(|error| format!("couldn't get version/kind; json parse error: {}", error.message))?
    } else {
        yaml::document(line.as_bytes()).map_err(|error| error.message)?.value
    };
    match object {
        Value::Map(_) => Ok(object),
        other => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {META}",
            other.json_type()
        )),
    }
}

fn any_or(pattern: &str, value: &str) -> bool {
    pattern == "*" || pattern == value
}

impl AbacPolicy {
    fn current(object: &Value) -> Result<Self, String> {
        let empty = Value::Map(value::Map::new());
        let spec = object.at(&["spec"]).filter(|spec| !spec.is_null()).unwrap_or(&empty);
        let (user, group) =
            (text(spec, "PolicySpec", "spec.", "user")?, text(spec, "PolicySpec", "spec.", "group")?);
        // `*` means all authenticated users, not anonymous ones.
        let is_for_all = user == "*" || group == "*";
        Ok(AbacPolicy {
            user: if is_for_all { Str::default() } else { user },
            group: if is_for_all { Str::new_static(names::AUTHENTICATED) } else { group },
            readonly: flag(spec, "PolicySpec", "spec.", "readonly")?,
            api_group: text(spec, "PolicySpec", "spec.", "apiGroup")?,
            resource: text(spec, "PolicySpec", "spec.", "resource")?,
            namespace: text(spec, "PolicySpec", "spec.", "namespace")?,
            path: text(spec, "PolicySpec", "spec.", "nonResourcePath")?,
        })
    }

    /// In the oldest format every omitted field matches everything, and a line without user and group matches
    /// all authenticated users.
    fn oldest(object: &Value) -> Result<Self, String> {
        let (user, group) = (text(object, "Policy", "", "user")?, text(object, "Policy", "", "group")?);
        let (namespace, resource) =
            (text(object, "Policy", "", "namespace")?, text(object, "Policy", "", "resource")?);
        let is_for_all = (user.is_empty() && group.is_empty()) || user == "*" || group == "*";
        let any = || Str::new_static("*");
        Ok(AbacPolicy {
            user: if is_for_all { Str::default() } else { user },
            group: if is_for_all { Str::new_static(names::AUTHENTICATED) } else { group },
            readonly: flag(object, "Policy", "", "readonly")?,
            api_group: any(),
            path: if namespace.is_empty() && resource.is_empty() { any() } else { Str::default() },
            namespace: if namespace.is_empty() { any() } else { namespace },
            resource: if resource.is_empty() { any() } else { resource },
        })
    }

    fn matches(&self, user: &User, attributes: &AuthorizationAttributes) -> bool {
        let reads = matches!(attributes.verb.as_str(), "get" | "list" | "watch");
        if !self.is_about(user) || (self.readonly && !reads) {
            return false;
        }
        if attributes.is_resource {
            any_or(&self.namespace, &attributes.namespace)
                && any_or(&self.resource, &attributes.resource)
                && any_or(&self.api_group, &attributes.group)
        } else {
            api::non_resource_urls::non_resource_url_matches(&self.path, &attributes.path)
        }
    }

    /// Whether the policy's user and group match. A policy without both matches no user.
    fn is_about(&self, user: &User) -> bool {
        if self.user.is_empty() && self.group.is_empty() {
            return false;
        }
        (self.user.is_empty() || self.user == user.name) && (self.group.is_empty() || user.is_in(&self.group))
    }
}

/// Reads a string field of the Go struct `owner`, which is at `path` in its object.
fn text(object: &Value, owner: &str, path: &str, field: &str) -> Result<Str, String> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(Str::default()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong(other, owner, path, field, "string")),
    }
}

fn flag(object: &Value, owner: &str, path: &str, field: &str) -> Result<bool, String> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong(other, owner, path, field, "bool")),
    }
}

fn wrong(value: &Value, owner: &str, path: &str, field: &str, wanted: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {owner}.{path}{field} of type {wanted}",
        value.json_type()
    )
}
