//! [`RbacIndex`]: from users and groups to their rules.
//!
//! Bindings are indexed by namespace (ClusterRoleBindings under the empty one), by user or group, and by
//! role. A decision looks up the user's name and groups for the cluster and for the namespace, so its cost
//! does not depend on the number of other bindings, nor on how often a role is bound to the same subject.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use api::field::{aggregate, quote};
use api::meta;
use authn::User;
use value::{Str, Value, format_smolstr};

use crate::attributes::AuthorizationAttributes;
use crate::decision::{AuthorizerDecision, DecisionReason};
use crate::rbac::rule::PolicyRule;
use crate::rbac::subject::{RbacSubject, RoleRef, SubjectKey};

/// The kinds of objects that the index is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RbacKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl RbacKind {
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Role" => Some(RbacKind::Role),
            "ClusterRole" => Some(RbacKind::ClusterRole),
            "RoleBinding" => Some(RbacKind::RoleBinding),
            "ClusterRoleBinding" => Some(RbacKind::ClusterRoleBinding),
            _ => None,
        }
    }
}

/// Shared: requests read it while the write path updates it.
#[derive(Default)]
pub struct RbacIndex {
    state: RwLock<IndexState>,
}

#[derive(Default)]
struct IndexState {
    cluster_roles: HashMap<Str, Arc<[PolicyRule]>>,
    /// By namespace, then name.
    roles: HashMap<Str, HashMap<Str, Arc<[PolicyRule]>>>,
    /// By namespace; ClusterRoleBindings are under the empty string.
    scopes: HashMap<Str, ScopeBindings>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Default)]
struct ScopeBindings {
    bindings: HashMap<Str, Binding>,
    users: HashMap<Str, BoundRoles>,
    groups: HashMap<Str, BoundRoles>,
}

struct Binding {
    role: RoleRef,
    subjects: Vec<RbacSubject>,
}

/// The roles of one subject, each with the names of the bindings that grant it.
type BoundRoles = BTreeMap<RoleRef, BTreeSet<Str>>;

/// The binding that allowed a request. Formats as the reason in reviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowingBinding {
    /// Empty for a ClusterRoleBinding.
    namespace: Str,
    binding: Str,
    role: RoleRef,
    subject: Str,
}

/// The rules of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectRules {
    pub rules: Vec<PolicyRule>,
    /// Whether there may be more rules.
    pub incomplete: bool,
    pub error: Option<String>,
}

impl RbacIndex {
    /// Objects of other kinds are ignored.
    pub fn from_objects<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let index = RbacIndex::default();
        for object in objects {
            if let Some(kind) = object.str_at(&["kind"]).and_then(RbacKind::parse) {
                index.apply(kind, None, Some(object));
            }
        }
        index
    }

    /// Applies a change. `old` is `None` for a creation, `new` for a deletion.
    pub fn apply(&self, kind: RbacKind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let (namespace, name) = (Str::from(meta::namespace(object)), Str::from(meta::name(object)));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let IndexState { cluster_roles, roles, scopes } = &mut *state;
        match kind {
            RbacKind::ClusterRole => set(cluster_roles, name, new),
            RbacKind::Role => {
                let here = roles.entry(namespace.clone()).or_default();
                set(here, name, new);
                if here.is_empty() {
                    roles.remove(&namespace);
                }
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let namespace = if kind == RbacKind::RoleBinding { namespace } else { Str::default() };
                let scope = scopes.entry(namespace.clone()).or_default();
                scope.remove(&namespace, &name);
                if let Some(new) = new {
                    let subjects = new.list_at(&["subjects"]).iter().map(RbacSubject::from_value).collect();
                    scope.insert(&namespace, name, Binding { role: RoleRef::of(new), subjects });
                }
                if scope.bindings.is_empty() {
                    scopes.remove(&namespace);
                }
            }
        }
    }

    /// Allows, or has no opinion. The reason of the latter names bound roles that do not exist.
    pub fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        let state = self.read();
        let mut missing: Vec<String> = Vec::new();
        for scope in scopes_of(&attributes.namespace) {
            for (role, bindings) in state.bound(user, scope) {
                match state.rules(role, scope) {
                    Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                        let granted = state.granted(user, scope, role, bindings);
                        return AuthorizerDecision::allow(DecisionReason::Granted(granted));
                    }
                    Some(_) => {}
                    None => missing.push(role.missing()),
                }
            }
        }
        if missing.is_empty() {
            return AuthorizerDecision { reason: DecisionReason::None, ..AuthorizerDecision::no_opinion("") };
        }
        AuthorizerDecision::no_opinion(format_smolstr!("RBAC: {}", aggregate(missing)))
    }

    /// The rules of a user in a namespace, or cluster-wide if it is empty; once per binding, up to
    /// [`MAX_LISTED`] entries.
    pub fn rules_for(&self, user: &User, namespace: &str) -> SubjectRules {
        let (mut rules, mut missing, mut left) = (Vec::new(), Vec::new(), MAX_LISTED);
        self.each_binding(user, namespace, |role, given| match given {
            Some(given) => rules.extend(given.iter().take_while(|rule| take(&mut left, rule)).cloned()),
            None => missing.push(role.clone()),
        });
        let error = (!missing.is_empty()).then(|| aggregate(missing.iter().map(RoleRef::missing)));
        SubjectRules { rules, incomplete: left == 0, error }
    }

    /// The rules of a user in a namespace, or cluster-wide if it is empty, once per role; and the bound roles
    /// that do not exist.
    pub(super) fn held(&self, user: &User, namespace: &str) -> (Vec<Arc<[PolicyRule]>>, Vec<RoleRef>) {
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        let mut seen: HashSet<*const PolicyRule> = HashSet::new();
        self.each_binding(user, namespace, |role, given| match given {
            Some(given) if seen.insert(given.as_ptr()) => all.push(Arc::clone(given)),
            Some(_) => {}
            None => missing.push(role.clone()),
        });
        (all, missing)
    }

    /// Calls `each` with the role and rules of every binding of a user, sorted by name, cluster-wide bindings
    /// first. The rules are `None` if the role does not exist.
    fn each_binding(
        &self,
        user: &User,
        namespace: &str,
        mut each: impl FnMut(&RoleRef, Option<&Arc<[PolicyRule]>>),
    ) {
        let state = self.read();
        for scope in scopes_of(namespace) {
            let mut bindings: BTreeMap<&Str, &RoleRef> = BTreeMap::new();
            for (role, names) in state.bound(user, scope) {
                bindings.extend(names.iter().map(|name| (name, role)));
            }
            for role in bindings.into_values() {
                each(role, state.rules(role, scope));
            }
        }
    }

    /// The rules of the role that a binding in `namespace` (empty for a ClusterRoleBinding) refers to; `None`
    /// if it does not exist.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Option<Arc<[PolicyRule]>> {
        self.read().rules(role, namespace).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, IndexState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RbacIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.read();
        write!(f, "Index({} cluster roles, {} scopes)", state.cluster_roles.len(), state.scopes.len())
    }
}

/// Maximum number of rule entries in a list: thousands of bindings can give the same large role.
const MAX_LISTED: usize = 1_000_000;

/// Deducts the entries of a rule from `left`. Returns false if nothing is left.
fn take(left: &mut usize, rule: &PolicyRule) -> bool {
    *left = left.saturating_sub(rule.entries());
    *left > 0
}

/// The cluster first, then the namespace.
fn scopes_of(namespace: &str) -> impl Iterator<Item = &str> {
    std::iter::once("").chain((!namespace.is_empty()).then_some(namespace))
}

fn set(roles: &mut HashMap<Str, Arc<[PolicyRule]>>, name: Str, role: Option<&Value>) {
    match role {
        Some(role) => roles.insert(name, PolicyRule::all_of(role).into()),
        None => roles.remove(&name),
    };
}

impl IndexState {
    /// The roles of a user in a scope: by name first, then by each group.
    fn bound<'a>(
        &'a self,
        user: &'a User,
        scope: &str,
    ) -> impl Iterator<Item = (&'a RoleRef, &'a BTreeSet<Str>)> {
        let scope = self.scopes.get(scope);
        let by_name = scope.and_then(|scope| scope.users.get(&user.name));
        let by_group = user.groups.iter().filter_map(move |group| scope?.groups.get(group));
        by_name.into_iter().chain(by_group).flatten()
    }

    fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[PolicyRule]>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace)?.get(&role.name),
            _ => None,
        }
    }

    fn granted(&self, user: &User, scope: &str, role: &RoleRef, bindings: &BTreeSet<Str>) -> AllowingBinding {
        let binding = bindings.first().cloned().unwrap_or_default();
        let subjects = self.scopes.get(scope).and_then(|s| s.bindings.get(&binding)).map(|b| &b.subjects);
        let subject = subjects.and_then(|subjects| subjects.iter().find(|s| s.is(user, scope)));
        AllowingBinding {
            namespace: scope.into(),
            binding,
            role: role.clone(),
            subject: subject.map(|s| s.describe(scope)).unwrap_or_default().into(),
        }
    }
}

impl ScopeBindings {
    fn insert(&mut self, namespace: &str, name: Str, binding: Binding) {
        for subject in &binding.subjects {
            let bound = match subject.key(namespace) {
                Some(SubjectKey::User(user)) => self.users.entry(user).or_default(),
                Some(SubjectKey::Group(group)) => self.groups.entry(group).or_default(),
                None => continue,
            };
            bound.entry(binding.role.clone()).or_default().insert(name.clone());
        }
        self.bindings.insert(name, binding);
    }

    fn remove(&mut self, namespace: &str, name: &Str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            match subject.key(namespace) {
                Some(SubjectKey::User(user)) => unbind(&mut self.users, &user, &binding.role, name),
                Some(SubjectKey::Group(group)) => unbind(&mut self.groups, &group, &binding.role, name),
                None => {}
            }
        }
    }
}

fn unbind(subjects: &mut HashMap<Str, BoundRoles>, subject: &Str, role: &RoleRef, binding: &Str) {
    let Some(bound) = subjects.get_mut(subject) else { return };
    if let Some(bindings) = bound.get_mut(role) {
        bindings.remove(binding);
        if bindings.is_empty() {
            bound.remove(role);
        }
    }
    if bound.is_empty() {
        subjects.remove(subject);
    }
}

impl fmt::Display for AllowingBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllowingBinding { namespace, binding, role, subject } = self;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {} of {role} to {subject}", quote(binding))
        } else {
            let binding = quote(&format!("{binding}/{namespace}"));
            write!(f, "RoleBinding {binding} of {role} to {subject}")
        }
    }
}
