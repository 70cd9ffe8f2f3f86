//! [`Rule`]: which verbs on which resources or paths.

use std::fmt;

use api::field::quote;
use value::{Map, Str, Value};

use crate::attributes::Attributes;

/// One rule of a role: each list is "any of these", and all lists must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Verbs; `*` is any.
    pub verbs: Vec<Str>,
    /// API groups; `*` is any.
    pub groups: Vec<Str>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<Str>,
    /// Names of objects; empty is any.
    pub resource_names: Vec<Str>,
    /// Paths that are no resource; a `*` at the end is anything.
    pub urls: Vec<Str>,
}

/// Rules that allow everything.
pub fn everything() -> Vec<Rule> {
    let any = || vec![Str::new_static("*")];
    vec![
        Rule { verbs: any(), groups: any(), resources: any(), ..Rule::default() },
        Rule { verbs: any(), urls: any(), ..Rule::default() },
    ]
}

impl Rule {
    /// Reads a `PolicyRule`; what has the wrong type is left out, which can only narrow the rule (validation refuses it long
    /// before).
    pub fn from_value(value: &Value) -> Self {
        let list = |field: &str| -> Vec<Str> {
            value.list_at(&[field]).iter().filter_map(Value::as_str).map(Str::from).collect()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<Rule> {
        role.list_at(&["rules"]).iter().map(Rule::from_value).collect()
    }

    /// How many entries its lists have, and one.
    pub fn entries(&self) -> usize {
        let Rule { verbs, groups, resources, resource_names, urls } = self;
        1 + [verbs, groups, resources, resource_names, urls].into_iter().map(Vec::len).sum::<usize>()
    }

    /// As a `PolicyRule`.
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

    /// Whether the rule allows a request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        let any_of = |list: &[Str], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        if !any_of(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.urls.iter().any(|url| url_covers(url, &attributes.path));
        }
        any_of(&self.groups, &attributes.group)
            && self.resources.iter().any(|r| names(r, &attributes.resource, &attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }
}

fn strings(list: &[Str]) -> Value {
    Value::List(list.iter().cloned().map(Value::String).collect())
}

/// Whether a rule's resource names the requested one.
fn names(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    match rule.split_once('/') {
        // A request's resource never holds a slash, but its subresource may (`proxy/x`): compare whole remainders.
        Some((main, sub)) => (main == "*" || main == resource) && sub == subresource,
        None => false,
    }
}

/// Whether a path pattern covers a path: equal, or everything before its trailing stars begins it.
pub(crate) fn url_covers(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// As messages about missing permissions show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
impl fmt::Display for Rule {
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

/// A list as Go prints it with `%q`.
pub(super) fn quoted(list: &[Str]) -> String {
    let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
    format!("[{}]", items.join(" "))
}
