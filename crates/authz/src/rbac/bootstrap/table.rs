//! The types and constructors of the tables. Lists are strings of words separated by spaces.

use api::{groups, namespaces};
use value::{Map, Str, Value};

use crate::rbac::PolicyRule;

/// The name of the core API group in tables, where an empty word is impossible.
pub(super) const CORE: &str = "core";
pub(super) const READ: &str = "get list watch";
/// Verbs that change objects.
pub(super) const WRITE: &str = "create delete deletecollection patch update";
/// The verbs of [`READ`] and [`WRITE`].
pub(super) const ALL: &str = "create delete deletecollection get list patch update watch";
/// The rule for components that report events.
pub(super) const EVENTS: Allow = on("create patch update", "core events.k8s.io", "events");

/// A rule of a role, with lists as words.
#[derive(Clone, Copy)]
pub(super) struct Allow {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    paths: &'static str,
}

/// A rule for all objects of these resources, in each of the API groups.
pub(super) const fn on(verbs: &'static str, groups: &'static str, resources: &'static str) -> Allow {
    Allow { verbs, groups, resources, names: "", paths: "" }
}

/// A rule for non-resource paths.
pub(super) const fn paths(verbs: &'static str, paths: &'static str) -> Allow {
    Allow { verbs, groups: "", resources: "", names: "", paths }
}

impl Allow {
    /// Restricts the rule to objects with these names.
    pub(super) const fn only(mut self, names: &'static str) -> Self {
        self.names = names;
        self
    }

    fn rule(&self) -> PolicyRule {
        let words = |text: &'static str| text.split_whitespace().map(Str::new_static).collect::<Vec<_>>();
        let core = |group: Str| if group == CORE { Str::default() } else { group };
        PolicyRule {
            verbs: words(self.verbs),
            groups: words(self.groups).into_iter().map(core).collect(),
            resources: words(self.resources),
            resource_names: words(self.names),
            urls: words(self.paths),
        }
    }
}

/// A Role or ClusterRole.
pub(super) struct Role {
    name: &'static str,
    controller: bool,
    rules: &'static [Allow],
    aggregates: &'static str,
    aggregated_to: &'static str,
}

/// A role that is not a controller's.
pub(super) const fn role(name: &'static str, rules: &'static [Allow]) -> Role {
    Role { name, controller: false, rules, aggregates: "", aggregated_to: "" }
}

/// The cluster role `system:controller:NAME` of a controller.
pub(super) const fn controller(name: &'static str, rules: &'static [Allow]) -> Role {
    Role { name, controller: true, rules, aggregates: "", aggregated_to: "" }
}

impl Role {
    /// Adds an aggregation rule: the role gets the rules of all roles aggregated to `target`.
    pub(super) const fn aggregates(mut self, target: &'static str) -> Self {
        self.aggregates = target;
        self
    }

    /// Adds the label `aggregate-to-TARGET`, so that roles that aggregate `target` get these rules.
    pub(super) const fn aggregated_to(mut self, target: &'static str) -> Self {
        self.aggregated_to = target;
        self
    }

    /// Whether this is the role `name`. False for roles of controllers.
    pub(super) fn is(&self, name: &str) -> bool {
        !self.controller && self.name == name
    }

    /// The rules as [`PolicyRule`]s, without aggregated ones.
    pub(super) fn rules(&self) -> Vec<PolicyRule> {
        self.rules.iter().map(Allow::rule).collect()
    }

    /// The binding of a controller's role to its service account; `None` for other roles.
    pub(super) fn own_binding(&self) -> Option<Value> {
        let name = self.full_name();
        self.controller.then(|| binding("", &name, "ClusterRole", &name, &[service_account(self.name)]))
    }

    fn full_name(&self) -> String {
        if self.controller { format!("system:controller:{}", self.name) } else { self.name.to_owned() }
    }

    /// The object to store: a Role in `namespace`, or a ClusterRole if it is empty.
    pub(super) fn object(&self, namespace: &str) -> Value {
        self.object_with(namespace, [])
    }

    /// Like [`Self::object`], with rules that follow those of the row.
    pub(super) fn object_with<'a>(
        &self,
        namespace: &str,
        added: impl IntoIterator<Item = &'a Allow>,
    ) -> Value {
        let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        let mut object = object(kind, namespace, &self.full_name());
        let label = |target: &str| format!("rbac.authorization.k8s.io/aggregate-to-{target}");
        if !self.aggregated_to.is_empty() {
            object.set_at(&["metadata", "labels", &label(self.aggregated_to)], "true");
        }
        if !self.aggregates.is_empty() {
            let selector = Value::map([("matchLabels", Value::map([(label(self.aggregates), "true")]))]);
            object.set_at(&["aggregationRule", "clusterRoleSelectors"], Value::list([selector]));
        }
        let rules: Vec<Value> = self.rules.iter().chain(added).map(|allow| allow.rule().to_value()).collect();
        object.set_at(&["rules"], if rules.is_empty() { Value::Null } else { Value::List(rules) });
        object
    }
}

/// A RoleBinding or ClusterRoleBinding.
pub(super) struct BindingRow {
    pub(super) name: &'static str,
    /// The name of the role: a ClusterRole for cluster-wide bindings, else a Role.
    pub(super) role: &'static str,
    /// The users, groups and service accounts that get the role.
    pub(super) subjects: &'static [BindingSubject],
}

#[derive(Clone, Copy)]
pub(super) struct BindingSubject {
    kind: &'static str,
    name: &'static str,
}

pub(super) const fn user(name: &'static str) -> BindingSubject {
    BindingSubject { kind: "User", name }
}

pub(super) const fn group(name: &'static str) -> BindingSubject {
    BindingSubject { kind: "Group", name }
}

/// A service account in the namespace `kube-system`.
pub(super) const fn service_account(name: &'static str) -> BindingSubject {
    BindingSubject { kind: "ServiceAccount", name }
}

impl BindingRow {
    /// A binding with the name of its role.
    pub(super) const fn same(name: &'static str, subjects: &'static [BindingSubject]) -> Self {
        BindingRow { name, role: name, subjects }
    }

    /// The object to store: a RoleBinding to a Role in `namespace`, or a ClusterRoleBinding if it is empty.
    pub(super) fn object(&self, namespace: &str) -> Value {
        let role = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        binding(namespace, self.name, role, self.role, self.subjects)
    }
}

fn binding(namespace: &str, name: &str, role_kind: &str, role: &str, subjects: &[BindingSubject]) -> Value {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    let mut object = object(kind, namespace, name);
    object
        .set_at(&["roleRef"], Value::map([("apiGroup", groups::RBAC), ("kind", role_kind), ("name", role)]));
    if !subjects.is_empty() {
        let subjects = subjects.iter().map(|who| {
            let (field, value) = if who.kind == "ServiceAccount" {
                ("namespace", namespaces::SYSTEM)
            } else {
                ("apiGroup", groups::RBAC)
            };
            Value::map([("kind", who.kind), ("name", who.name), (field, value)])
        });
        object.set_at(&["subjects"], Value::list(subjects));
    }
    object
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut metadata = Map::new();
    metadata.insert("annotations", Value::map([(super::AUTOUPDATE, "true")]));
    metadata.insert("labels", Value::map([("kubernetes.io/bootstrapping", "rbac-defaults")]));
    metadata.insert("name", name);
    if !namespace.is_empty() {
        metadata.insert("namespace", namespace);
    }
    Value::map([
        ("apiVersion", Value::from(format!("{}/v1", groups::RBAC))),
        ("kind", Value::from(kind)),
        ("metadata", Value::Map(metadata)),
    ])
}
