//! [`PolicyRule`]: verbs on resources or paths.

use std::fmt;

use api::field::quote;
use api::non_resource_urls::non_resource_url_matches;
use value::{Map, Str, Value};

use crate::attributes::AuthorizationAttributes;

/// A rule of a role. Within a list any entry may match; all lists must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyRule {
    /// `*` matches any verb.
    pub verbs: Vec<Str>,
    /// `*` matches any API group.
    pub groups: Vec<Str>,
    /// For example `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<Str>,
    /// Empty matches any name.
    pub resource_names: Vec<Str>,
    /// Non-resource paths; a trailing `*` matches any suffix.
    pub urls: Vec<Str>,
}

pub fn everything() -> Vec<PolicyRule> {
    let any = || vec![Str::new_static("*")];
    vec![
        PolicyRule { verbs: any(), groups: any(), resources: any(), ..PolicyRule::default() },
        PolicyRule { verbs: any(), urls: any(), ..PolicyRule::default() },
    ]
}

impl PolicyRule {
    /// Reads a `PolicyRule`. Entries of the wrong type are ignored, which only narrows the rule; validation
    /// rejects them anyway.
    pub fn from_value(value: &Value) -> Self {
        let list = |field: &str| -> Vec<Str> {
            value.list_at(&[field]).iter().filter_map(Value::as_str).map(Str::from).collect()
        };
        PolicyRule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<PolicyRule> {
        role.list_at(&["rules"]).iter().map(PolicyRule::from_value).collect()
    }

    /// The number of entries of all lists, plus one.
    pub fn entries(&self) -> usize {
        let PolicyRule { verbs, groups, resources, resource_names, urls } = self;
        1 + [verbs, groups, resources, resource_names, urls].into_iter().map(Vec::len).sum::<usize>()
    }

    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (field, list) in [
            ("apiGroups", &self.groups),
            ("nonResourceURLs", &self.urls),
            ("resourceNames", &self.resource_names),
            ("resources", &self.resources),
        ] {
            if !list.is_empty() {
                out.insert(field, strings(list));
            }
        }
        out.insert("verbs", strings(&self.verbs));
        Value::Map(out)
    }

    pub fn allows(&self, attributes: &AuthorizationAttributes) -> bool {
        let any_of = |list: &[Str], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        if !any_of(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.urls.iter().any(|url| non_resource_url_matches(url, &attributes.path));
        }
        any_of(&self.groups, &attributes.group)
            && self.resources.iter().any(|r| names(r, &attributes.resource, &attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }
}

fn strings(list: &[Str]) -> Value {
    Value::List(list.iter().cloned().map(Value::String).collect())
}

/// Whether an entry of `resources` matches the requested resource.
fn names(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    match rule.split_once('/') {
        // A resource never contains a slash, but a subresource may (`proxy/x`): compare everything after the
        // first slash.
        Some((main, sub)) => (main == "*" || main == resource) && sub == subresource,
        None => false,
    }
}

/// As in messages about missing permissions: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let mut first = true;
        for (label, list) in [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                write!(f, "{}{label}:{}", if first { "" } else { ", " }, quoted(list))?;
                first = false;
            }
        }
        f.write_str("}")
    }
}

/// Formats a list like Go's `%q`.
pub(super) fn quoted(list: &[Str]) -> String {
    let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
    format!("[{}]", items.join(" "))
}
