//! One rule: groups, versions, resources, operations, scope and names.

use value::{Str, Value};

use crate::Operation;

/// Request attributes that a rule is compared with.
#[derive(Clone, Copy, Debug)]
pub struct RuleTarget<'a> {
    pub group: &'a str,
    pub version: &'a str,
    /// The plural name, for example `pods`.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub operation: Operation,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Empty if the name is not known.
    pub name: &'a str,
}

impl RuleTarget<'_> {
    fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.version == "v1" && self.resource == "namespaces"
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    pub const ALL: Operations = Operations(0b1111);

    fn bit(operation: Operation) -> u8 {
        match operation {
            Operation::Create => 1,
            Operation::Update => 2,
            Operation::Delete => 4,
            Operation::Connect => 8,
        }
    }

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleScope {
    Any,
    Cluster,
    Namespaced,
    /// An unknown value, which matches nothing.
    Unknown,
}

/// A rule of a webhook (`RuleWithOperations`) or of a policy (`NamedRuleWithOperations`).
#[derive(Clone, Debug)]
pub struct AdmissionRule {
    groups: Vec<Str>,
    versions: Vec<Str>,
    /// Pairs of resource and subresource.
    resources: Vec<(Str, Str)>,
    operations: Operations,
    scope: RuleScope,
    names: Vec<Str>,
}

impl AdmissionRule {
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
        AdmissionRule {
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources,
            operations,
            scope: match rule.str_at(&["scope"]) {
                None | Some("*") => RuleScope::Any,
                Some("Cluster") => RuleScope::Cluster,
                Some("Namespaced") => RuleScope::Namespaced,
                Some(_) => RuleScope::Unknown,
            },
            names: texts("resourceNames"),
        }
    }

    /// Compares everything except the name.
    pub fn matches(&self, target: &RuleTarget<'_>) -> bool {
        self.operations.contains(target.operation)
            && self.matches_scope(target)
            && matches_any(&self.groups, target.group)
            && matches_any(&self.versions, target.version)
            && self.matches_resource(target.resource, target.subresource)
    }

    /// Whether `resourceNames` contains the name or is empty.
    pub fn matches_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == name)
    }

    fn matches_scope(&self, target: &RuleTarget<'_>) -> bool {
        // A namespace has itself as namespace here, but is cluster-scoped.
        let in_cluster = target.namespace.is_empty() || target.is_namespace();
        match self.scope {
            RuleScope::Any => true,
            RuleScope::Cluster => in_cluster,
            RuleScope::Namespaced => !in_cluster,
            RuleScope::Unknown => false,
        }
    }

    fn matches_resource(&self, resource: &str, subresource: &str) -> bool {
        let fits = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        self.resources.iter().any(|(r, s)| fits(r, resource) && fits(s, subresource))
    }

    /// The rule's API groups; `*` means any.
    pub fn groups(&self) -> &[Str] {
        &self.groups
    }

    /// The rule's resources and subresources; `*` means any.
    pub fn resources(&self) -> &[(Str, Str)] {
        &self.resources
    }

    pub fn operations(&self) -> Operations {
        self.operations
    }
}

fn matches_any(known: &[Str], wanted: &str) -> bool {
    known.iter().any(|item| item == "*" || item == wanted)
}
