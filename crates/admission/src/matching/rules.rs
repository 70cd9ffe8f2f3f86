//! One rule: groups, versions, resources, operations, scope and names.

use value::{Str, Value};

use crate::Operation;

/// What a rule is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The API group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The namespace; empty for what is in none.
    pub namespace: &'a str,
    /// The name; empty where it is not known.
    pub name: &'a str,
}

impl Target<'_> {
    fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.version == "v1" && self.resource == "namespaces"
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    /// Every one.
    pub const ALL: Operations = Operations(0b1111);

    fn bit(operation: Operation) -> u8 {
        match operation {
            Operation::Create => 1,
            Operation::Update => 2,
            Operation::Delete => 4,
            Operation::Connect => 8,
        }
    }

    /// Whether an operation is among them.
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & Self::bit(operation) != 0
    }

    fn add(&mut self, word: &str) {
        let bits = match word {
            "*" => Self::ALL.0,
            "CREATE" => Self::bit(Operation::Create),
            "UPDATE" => Self::bit(Operation::Update),
            "DELETE" => Self::bit(Operation::Delete),
            "CONNECT" => Self::bit(Operation::Connect),
            _ => 0,
        };
        self.0 |= bits;
    }
}

/// Where the object has to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Any,
    Cluster,
    Namespaced,
    /// A word nobody knows; matches nothing.
    Unknown,
}

/// A rule of a webhook (`RuleWithOperations`) or of a policy (`NamedRuleWithOperations`).
#[derive(Clone, Debug)]
pub struct Rule {
    groups: Vec<Str>,
    versions: Vec<Str>,
    /// Resource and subresource.
    resources: Vec<(Str, Str)>,
    operations: Operations,
    scope: Scope,
    names: Vec<Str>,
}

impl Rule {
    /// Reads a rule.
    pub fn read(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<Str> {
            rule.list_at(&[field]).iter().filter_map(Value::as_str).map(Str::from).collect()
        };
        let mut operations = Operations::default();
        rule.list_at(&["operations"]).iter().filter_map(Value::as_str).for_each(|word| operations.add(word));
        let resources = texts("resources")
            .into_iter()
            .map(|text| match text.split_once('/') {
                Some((resource, subresource)) => (resource.into(), subresource.into()),
                None => (text, Str::default()),
            })
            .collect();
        Rule {
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources,
            operations,
            scope: match rule.str_at(&["scope"]) {
                None | Some("*") => Scope::Any,
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                Some(_) => Scope::Unknown,
            },
            names: texts("resourceNames"),
        }
    }

    /// Whether the rule is about a target, whatever its name.
    pub fn matches(&self, target: &Target<'_>) -> bool {
        self.operations.contains(target.operation)
            && self.matches_scope(target)
            && either(&self.groups, target.group)
            && either(&self.versions, target.version)
            && self.matches_resource(target.resource, target.subresource)
    }

    /// Whether the rule is about a name; without names it is about all.
    pub fn matches_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == name)
    }

    fn matches_scope(&self, target: &Target<'_>) -> bool {
        // A namespace has itself for its namespace and belongs to the cluster all the same.
        let in_cluster = target.namespace.is_empty() || target.is_namespace();
        match self.scope {
            Scope::Any => true,
            Scope::Cluster => in_cluster,
            Scope::Namespaced => !in_cluster,
            Scope::Unknown => false,
        }
    }

    fn matches_resource(&self, resource: &str, subresource: &str) -> bool {
        let fits = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        self.resources.iter().any(|(r, s)| fits(r, resource) && fits(s, subresource))
    }

    /// The groups it names, `*` for any.
    pub fn groups(&self) -> &[Str] {
        &self.groups
    }

    /// The resources and subresources it names, `*` for any.
    pub fn resources(&self) -> &[(Str, Str)] {
        &self.resources
    }

    /// The operations it is about.
    pub fn operations(&self) -> Operations {
        self.operations
    }
}

fn either(known: &[Str], wanted: &str) -> bool {
    known.iter().any(|item| item == "*" || item == wanted)
}
