//! The form the tables are written in: words separated by spaces, `core` for the core group.

use value::{Map, Str, Value};

use crate::rbac::{GROUP, PolicyRule};

/// The core API group.
pub(super) const CORE: &str = "core";
/// Looking.
pub(super) const READ: &str = "get list watch";
/// Changing.
pub(super) const WRITE: &str = "create delete deletecollection patch update";
/// Both.
pub(super) const ALL: &str = "create delete deletecollection get list patch update watch";
/// Reporting events.
pub(super) const EVENTS: Allow = on("create patch update", "core events.k8s.io", "events");

/// A rule of a role.
#[derive(Clone, Copy)]
pub(super) struct Allow {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    paths: &'static str,
}

/// Verbs on resources of groups.
pub(super) const fn on(verbs: &'static str, groups: &'static str, resources: &'static str) -> Allow {
    Allow { verbs, groups, resources, names: "", paths: "" }
}

/// Verbs on paths.
pub(super) const fn paths(verbs: &'static str, paths: &'static str) -> Allow {
    Allow { verbs, groups: "", resources: "", names: "", paths }
}

impl Allow {
    /// Only on objects of these names.
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

/// A role of either kind.
pub(super) struct Role {
    name: &'static str,
    controller: bool,
    rules: &'static [Allow],
    aggregates: &'static str,
    aggregated_to: &'static str,
}

/// A role.
pub(super) const fn role(name: &'static str, rules: &'static [Allow]) -> Role {
    Role { name, controller: false, rules, aggregates: "", aggregated_to: "" }
}

/// The cluster role of a controller.
pub(super) const fn controller(name: &'static str, rules: &'static [Allow]) -> Role {
    Role { name, controller: true, rules, aggregates: "", aggregated_to: "" }
}

impl Role {
    /// Its rules are those of all roles aggregated to `target`.
    pub(super) const fn aggregates(mut self, target: &'static str) -> Self {
        self.aggregates = target;
        self
    }

    /// Its rules are added to the role that aggregates `target`.
    pub(super) const fn aggregated_to(mut self, target: &'static str) -> Self {
        self.aggregated_to = target;
        self
    }

    /// Whether this is its name.
    pub(super) fn is(&self, name: &str) -> bool {
        !self.controller && self.name == name
    }

    /// Its rules.
    pub(super) fn rules(&self) -> Vec<PolicyRule> {
        self.rules.iter().map(Allow::rule).collect()
    }

    /// The binding of a controller's role to its service account.
    pub(super) fn own_binding(&self) -> Option<Value> {
        let name = self.full_name();
        self.controller.then(|| binding("", &name, "ClusterRole", &name, &[service_account(self.name)]))
    }

    fn full_name(&self) -> String {
        if self.controller { format!("system:controller:{}", self.name) } else { self.name.to_owned() }
    }

    /// The stored object: a ClusterRole, or a Role in a namespace.
    pub(super) fn object(&self, namespace: &str) -> Value {
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
        let rules: Vec<Value> = self.rules().iter().map(PolicyRule::to_value).collect();
        object.set_at(&["rules"], if rules.is_empty() { Value::Null } else { Value::List(rules) });
        object
    }
}

/// A role and whom it is given to.
pub(super) struct Bind {
    /// The binding's name.
    pub(super) name: &'static str,
    /// The role's name.
    pub(super) role: &'static str,
    /// Whom.
    pub(super) subjects: &'static [Who],
}

/// A subject of a binding.
#[derive(Clone, Copy)]
pub(super) struct Who {
    kind: &'static str,
    name: &'static str,
}

/// A user.
pub(super) const fn user(name: &'static str) -> Who {
    Who { kind: "User", name }
}

/// A group.
pub(super) const fn group(name: &'static str) -> Who {
    Who { kind: "Group", name }
}

/// A service account of `kube-system`.
pub(super) const fn service_account(name: &'static str) -> Who {
    Who { kind: "ServiceAccount", name }
}

impl Bind {
    /// A binding that has its role's name.
    pub(super) const fn same(name: &'static str, subjects: &'static [Who]) -> Self {
        Bind { name, role: name, subjects }
    }

    /// The stored object: a ClusterRoleBinding, or a RoleBinding of a Role in a namespace.
    pub(super) fn object(&self, namespace: &str) -> Value {
        let role = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        binding(namespace, self.name, role, self.role, self.subjects)
    }
}

fn binding(namespace: &str, name: &str, role_kind: &str, role: &str, subjects: &[Who]) -> Value {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    let mut object = object(kind, namespace, name);
    object.set_at(&["roleRef"], Value::map([("apiGroup", GROUP), ("kind", role_kind), ("name", role)]));
    if !subjects.is_empty() {
        let subjects = subjects.iter().map(|who| {
            let (field, value) =
                if who.kind == "ServiceAccount" { ("namespace", "kube-system") } else { ("apiGroup", GROUP) };
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
        ("apiVersion", Value::from(format!("{GROUP}/v1"))),
        ("kind", Value::from(kind)),
        ("metadata", Value::Map(metadata)),
    ])
}
