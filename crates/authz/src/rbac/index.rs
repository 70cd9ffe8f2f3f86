//! [`RbacIndex`]: from users and groups to their rules.
//!
//! Bindings are indexed by namespace (ClusterRoleBindings under the empty one), by user or group, and by
//! role. A decision looks up the user's name and groups for the cluster and for the namespace, so its cost
//! does not depend on the number of other bindings, nor on how often a role is bound to the same subject.
//!
//! A writer that waits for the lock blocks every authorization. So the lock is held only to collect what
//! belongs to a limited number of groups ([`GROUPS_AT_ONCE`]); rules are evaluated without it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::iter;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    /// Nothing is added any more, since [`RbacIndex::close`].
    is_closed: bool,
    cluster_roles: HashMap<Str, Arc<[PolicyRule]>>,
    /// By namespace, then name.
    roles: HashMap<Str, HashMap<Str, Arc<[PolicyRule]>>>,
    /// By namespace; ClusterRoleBindings are under the empty string.
    scopes: HashMap<Str, ScopeBindings>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Default)]
struct ScopeBindings {
    bindings: HashMap<Str, Arc<Binding>>,
    users: HashMap<Str, BoundRoles>,
    groups: HashMap<Str, BoundRoles>,
}

struct Binding {
    role: RoleRef,
    subjects: Vec<RbacSubject>,
    /// The first subject with this user name.
    users: BTreeMap<Str, usize>,
    /// The first subject with this group.
    groups: BTreeMap<Str, usize>,
}

/// The roles of one subject, each with the bindings that grant it, by name.
type BoundRoles = BTreeMap<RoleRef, BTreeMap<Str, Arc<Binding>>>;

struct BoundRole {
    role: RoleRef,
    /// `None` if the role does not exist.
    rules: Option<Arc<[PolicyRule]>>,
    /// The first binding by name that grants the role, with its name.
    granted_by: Option<(Str, Arc<Binding>)>,
}

/// The binding that allowed a request. Formats as the reason in reviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowingBinding {
    /// Empty for a ClusterRoleBinding.
    namespace: Str,
    binding: Str,
    role: RoleRef,
    subject: Str,
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

    /// Removes all roles and bindings and ignores later changes, because the index may no longer agree with the stored objects: it grants
    /// nothing from now on.
    pub fn close(&self) {
        *self.write() = IndexState { is_closed: true, ..IndexState::default() };
    }

    /// Applies a change. `old` is `None` for a creation, `new` for a deletion.
    pub fn apply(&self, kind: RbacKind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let (namespace, name) = (Str::from(meta::namespace(object)), Str::from(meta::name(object)));
        // What takes long for a large object is done before the lock is taken, or after it is released.
        let _replaced = match kind {
            RbacKind::ClusterRole | RbacKind::Role => {
                let rules = new.map(|role| Arc::from(PolicyRule::all_of(role)));
                let mut state = self.write();
                if state.is_closed {
                    return;
                }
                let IndexState { cluster_roles, roles, .. } = &mut *state;
                if kind == RbacKind::ClusterRole {
                    (set(cluster_roles, name, rules), None)
                } else {
                    let here = roles.entry(namespace.clone()).or_default();
                    let replaced = set(here, name, rules);
                    if here.is_empty() {
                        roles.remove(&namespace);
                    }
                    (replaced, None)
                }
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let namespace = if kind == RbacKind::RoleBinding { namespace } else { Str::default() };
                let binding = new.map(|new| Arc::new(Binding::of(new, &namespace)));
                let mut state = self.write();
                if state.is_closed {
                    return;
                }
                let scope = state.scopes.entry(namespace.clone()).or_default();
                let replaced = scope.remove(&name);
                if let Some(binding) = binding {
                    scope.insert(name, binding);
                }
                if scope.bindings.is_empty() {
                    state.scopes.remove(&namespace);
                }
                (None, replaced)
            }
        };
    }

    /// Allows, or has no opinion. The reason of the latter names bound roles that do not exist.
    pub fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        let mut missing: Vec<String> = Vec::new();
        for scope in scopes_of(&attributes.namespace) {
            for bound in self.bound_roles(user, scope) {
                match &bound.rules {
                    Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                        return AuthorizerDecision::allow(DecisionReason::Granted(
                            bound.granted(user, scope),
                        ));
                    }
                    Some(_) => {}
                    None => missing.push(bound.role.missing()),
                }
            }
        }
        if missing.is_empty() {
            return AuthorizerDecision { reason: DecisionReason::None, ..AuthorizerDecision::no_opinion("") };
        }
        AuthorizerDecision::no_opinion(format_smolstr!("RBAC: {}", aggregate(missing)))
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
    pub(super) fn each_binding(
        &self,
        user: &User,
        namespace: &str,
        mut each: impl FnMut(&RoleRef, Option<&Arc<[PolicyRule]>>),
    ) {
        for scope in scopes_of(namespace) {
            let mut bindings: BTreeMap<Str, (RoleRef, Option<_>)> = BTreeMap::new();
            for (name, groups) in parts_of(user) {
                let state = self.read();
                for (role, granted_by) in state.bound(name, groups, scope) {
                    let rules = state.rules(role, scope);
                    let bound = granted_by.keys().map(|name| (name.clone(), (role.clone(), rules.cloned())));
                    bindings.extend(bound);
                }
            }
            for (role, rules) in bindings.values() {
                each(role, rules.as_ref());
            }
        }
    }

    /// The roles of a user in a scope: by name first, then by each group. Each once if the user has more than [`FEW_GROUPS`].
    fn bound_roles(&self, user: &User, scope: &str) -> impl Iterator<Item = BoundRole> {
        let has_few_groups = user.groups.len() <= FEW_GROUPS;
        let mut seen: HashSet<RoleRef> = HashSet::new();
        parts_of(user).flat_map(move |(name, groups)| {
            let state = self.read();
            let mut bound = Vec::new();
            for (role, granted_by) in state.bound(name, groups, scope) {
                if has_few_groups || seen.insert(role.clone()) {
                    let granted_by = granted_by.first_key_value();
                    bound.push(BoundRole {
                        role: role.clone(),
                        rules: state.rules(role, scope).cloned(),
                        granted_by: granted_by.map(|(name, binding)| (name.clone(), Arc::clone(binding))),
                    });
                }
            }
            bound
        })
    }

    /// The rules of each role of a user in a namespace, or cluster-wide if it is empty, with the number of its bindings.
    pub(super) fn binding_counts(
        &self,
        user: &User,
        namespace: &str,
    ) -> Vec<(Option<Arc<[PolicyRule]>>, usize)> {
        let mut all = Vec::new();
        for scope in scopes_of(namespace) {
            for (name, groups) in parts_of(user) {
                let state = self.read();
                let bound = state.bound(name, groups, scope);
                all.extend(bound.map(|(role, by)| (state.rules(role, scope).cloned(), by.len())));
            }
        }
        all
    }

    /// The rules of the role that a binding in `namespace` (empty for a ClusterRoleBinding) refers to; `None`
    /// if it does not exist.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Option<Arc<[PolicyRule]>> {
        self.read().rules(role, namespace).cloned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, IndexState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
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

/// Number of groups of a user that are looked up before the lock is released. A review can name 100,000.
const GROUPS_AT_ONCE: usize = 256;

/// Up to so many groups, evaluating a role once for each of them costs less than remembering the roles.
const FEW_GROUPS: usize = 8;

/// The name and groups of a user in parts of at most [`GROUPS_AT_ONCE`] groups. Only the first has the name.
fn parts_of(user: &User) -> impl Iterator<Item = (Option<&Str>, &[Str])> {
    let (first, rest) = user.groups.split_at(user.groups.len().min(GROUPS_AT_ONCE));
    iter::once((Some(&user.name), first)).chain(rest.chunks(GROUPS_AT_ONCE).map(|groups| (None, groups)))
}

/// The cluster first, then the namespace.
fn scopes_of(namespace: &str) -> impl Iterator<Item = &str> {
    std::iter::once("").chain((!namespace.is_empty()).then_some(namespace))
}

/// Sets or removes the rules of a role. Returns the rules it had.
fn set(
    roles: &mut HashMap<Str, Arc<[PolicyRule]>>,
    name: Str,
    rules: Option<Arc<[PolicyRule]>>,
) -> Option<Arc<[PolicyRule]>> {
    match rules {
        Some(rules) => roles.insert(name, rules),
        None => roles.remove(&name),
    }
}

impl IndexState {
    /// The roles of a user name in a scope, then those of each group.
    fn bound<'a>(
        &'a self,
        name: Option<&Str>,
        groups: &'a [Str],
        scope: &str,
    ) -> impl Iterator<Item = (&'a RoleRef, &'a BTreeMap<Str, Arc<Binding>>)> {
        let scope = self.scopes.get(scope);
        let by_name = name.and_then(|name| scope?.users.get(name));
        let by_group = groups.iter().filter_map(move |group| scope?.groups.get(group));
        by_name.into_iter().chain(by_group).flatten()
    }

    fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[PolicyRule]>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace)?.get(&role.name),
            _ => None,
        }
    }
}

impl BoundRole {
    fn granted(self, user: &User, scope: &str) -> AllowingBinding {
        let subject = self.granted_by.as_ref().and_then(|(_, binding)| binding.subject(user));
        let subject = subject.map(|s| s.describe(scope)).unwrap_or_default().into();
        let binding = self.granted_by.map(|(name, _)| name).unwrap_or_default();
        AllowingBinding { namespace: scope.into(), binding, role: self.role, subject }
    }
}

impl Binding {
    /// Reads a RoleBinding in `namespace`, or a ClusterRoleBinding if it is empty.
    fn of(object: &Value, namespace: &str) -> Self {
        let subjects: Vec<_> = object.list_at(&["subjects"]).iter().map(RbacSubject::from_value).collect();
        let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
        for (i, subject) in subjects.iter().enumerate() {
            match subject.key(namespace) {
                Some(SubjectKey::User(user)) => users.entry(user).or_insert(i),
                Some(SubjectKey::Group(group)) => groups.entry(group).or_insert(i),
                None => continue,
            };
        }
        Binding { role: RoleRef::of(object), subjects, users, groups }
    }

    /// The first subject that the user is.
    fn subject(&self, user: &User) -> Option<&RbacSubject> {
        let by_name = self.users.get(&user.name);
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group));
        by_name.into_iter().chain(by_group).min().and_then(|i| self.subjects.get(*i))
    }
}

impl ScopeBindings {
    fn insert(&mut self, name: Str, binding: Arc<Binding>) {
        for (subjects, keys) in [(&mut self.users, &binding.users), (&mut self.groups, &binding.groups)] {
            for subject in keys.keys() {
                let bound = subjects.entry(subject.clone()).or_default();
                bound.entry(binding.role.clone()).or_default().insert(name.clone(), Arc::clone(&binding));
            }
        }
        self.bindings.insert(name, binding);
    }

    fn remove(&mut self, name: &Str) -> Option<Arc<Binding>> {
        let binding = self.bindings.remove(name)?;
        for (subjects, keys) in [(&mut self.users, &binding.users), (&mut self.groups, &binding.groups)] {
            for subject in keys.keys() {
                unbind(subjects, subject, &binding.role, name);
            }
        }
        Some(binding)
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

#[cfg(test)]
mod tests;
