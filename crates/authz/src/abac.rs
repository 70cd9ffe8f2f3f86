//! Policy files: one JSON object per line that names a user or group and what they may do.

use api::field::quote;
use authn::{User, names};
use value::{Str, Value, json, yaml};

use crate::attributes::Attributes;
use crate::decision::{Answer, Reason};
use crate::rbac::{Rule, Rules};

/// The policies of a file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    policies: Vec<Policy>,
}

/// One line. An empty field of the resource kind matches the empty string alone; `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Policy {
    user: Str,
    group: Str,
    readonly: bool,
    api_group: Str,
    resource: Str,
    namespace: Str,
    path: Str,
}

/// Why a policy file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error reading policy file {path}, line {line}: {text}: {why}")]
pub struct PolicyFileError {
    path: String,
    line: usize,
    text: String,
    why: String,
}

/// The version that is written out; lines without one are of the oldest.
const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const OLDEST: &str = "abac.authorization.kubernetes.io/v0";
/// Where Go's scheme of these kinds is declared; part of its message.
const SCHEME: &str = "pkg/apis/abac/register.go:33";
/// How Go prints the type it reads an object's kind with.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

impl Policies {
    /// Reads a policy file's text; `path` is for the messages. The flag says whether lines without a version occurred, which
    /// deserves a warning.
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
                (VERSION, "Policy") => Policy::current(&object),
                (OLDEST, "Policy") => Policy::oldest(&object),
                // Half a version is none.
                ("", _) | (_, "") => {
                    unversioned = true;
                    Policy::oldest(&object)
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
        Ok((Policies { policies }, unversioned))
    }

    /// Allows what any policy matches; otherwise has no opinion.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Answer {
        if self.policies.iter().any(|policy| policy.matches(user, attributes)) {
            return Answer::allow(Reason::None);
        }
        Answer::no_opinion("No policy matched.")
    }

    /// What somebody may do in a namespace.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
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
                rules.push(Rule {
                    verbs: verbs.clone(),
                    groups: vec![policy.api_group.clone()],
                    resources: vec![policy.resource.clone()],
                    ..Rule::default()
                });
            }
            if !policy.path.is_empty() {
                rules.push(Rule { verbs, urls: vec![policy.path.clone()], ..Rule::default() });
            }
        }
        Rules { rules, ..Rules::default() }
    }
}

/// A line, which Go takes for YAML unless it begins as an object.
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

impl Policy {
    fn current(object: &Value) -> Result<Self, String> {
        let empty = Value::Map(value::Map::new());
        let spec = object.at(&["spec"]).filter(|spec| !spec.is_null()).unwrap_or(&empty);
        let (user, group) =
            (text(spec, "PolicySpec", "spec.", "user")?, text(spec, "PolicySpec", "spec.", "group")?);
        // Everybody means everybody who is somebody: not the anonymous.
        let everybody = user == "*" || group == "*";
        Ok(Policy {
            user: if everybody { Str::default() } else { user },
            group: if everybody { Str::new_static(names::AUTHENTICATED) } else { group },
            readonly: flag(spec, "PolicySpec", "spec.", "readonly")?,
            api_group: text(spec, "PolicySpec", "spec.", "apiGroup")?,
            resource: text(spec, "PolicySpec", "spec.", "resource")?,
            namespace: text(spec, "PolicySpec", "spec.", "namespace")?,
            path: text(spec, "PolicySpec", "spec.", "nonResourcePath")?,
        })
    }

    /// In the oldest form everything that is left out means "any", and nobody in particular means everybody authenticated.
    fn oldest(object: &Value) -> Result<Self, String> {
        let (user, group) = (text(object, "Policy", "", "user")?, text(object, "Policy", "", "group")?);
        let (namespace, resource) =
            (text(object, "Policy", "", "namespace")?, text(object, "Policy", "", "resource")?);
        let everybody = (user.is_empty() && group.is_empty()) || user == "*" || group == "*";
        let any = || Str::new_static("*");
        Ok(Policy {
            user: if everybody { Str::default() } else { user },
            group: if everybody { Str::new_static(names::AUTHENTICATED) } else { group },
            readonly: flag(object, "Policy", "", "readonly")?,
            api_group: any(),
            path: if namespace.is_empty() && resource.is_empty() { any() } else { Str::default() },
            namespace: if namespace.is_empty() { any() } else { namespace },
            resource: if resource.is_empty() { any() } else { resource },
        })
    }

    fn matches(&self, user: &User, attributes: &Attributes) -> bool {
        let reads = matches!(attributes.verb.as_str(), "get" | "list" | "watch");
        if !self.is_about(user) || (self.readonly && !reads) {
            return false;
        }
        if attributes.is_resource {
            any_or(&self.namespace, &attributes.namespace)
                && any_or(&self.resource, &attributes.resource)
                && any_or(&self.api_group, &attributes.group)
        } else {
            crate::rbac::url_covers(&self.path, &attributes.path)
        }
    }

    /// Whether both the user and the group a policy names match; one that names neither matches nobody.
    fn is_about(&self, user: &User) -> bool {
        if self.user.is_empty() && self.group.is_empty() {
            return false;
        }
        (self.user.is_empty() || self.user == user.name) && (self.group.is_empty() || user.is_in(&self.group))
    }
}

/// A field of the Go struct `owner`, which is at `path` in its object.
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
