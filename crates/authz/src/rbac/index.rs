//! [`Index`]: from user and groups to the rules that bind them.
//!
//! Bindings are filed under every user and group they name, per namespace (ClusterRoleBindings under none), and under one
//! subject by role. A decision looks up the caller's name and groups twice, once for the cluster and once for the namespace:
//! how many other bindings there are does not matter, nor how often the same role is bound to the same subject.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use api::field::{aggregate, quote};
use api::meta;
use authn::User;
use value::{Str, Value, format_smolstr};

use crate::attributes::Attributes;
use crate::decision::{Answer, Reason};
use crate::rbac::rule::Rule;
use crate::rbac::subject::{Key, RoleRef, Subject};

/// The kinds of objects the index follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rules in a namespace.
    Role,
    /// Rules in the cluster, or wherever bound.
    ClusterRole,
    /// A role to subjects in a namespace.
    RoleBinding,
    /// A cluster role to subjects everywhere.
    ClusterRoleBinding,
}

impl Kind {
    /// The kind by its name.
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Role" => Some(Kind::Role),
            "ClusterRole" => Some(Kind::ClusterRole),
            "RoleBinding" => Some(Kind::RoleBinding),
            "ClusterRoleBinding" => Some(Kind::ClusterRoleBinding),
            _ => None,
        }
    }
}

/// The roles and bindings as they are stored. Shared: requests read it while the write path updates it.
#[derive(Default)]
pub struct Index {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    cluster_roles: HashMap<Str, Arc<[Rule]>>,
    /// By namespace, then name.
    roles: HashMap<Str, HashMap<Str, Arc<[Rule]>>>,
    /// By namespace; ClusterRoleBindings under the empty one.
    scopes: HashMap<Str, Scope>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Default)]
struct Scope {
    bindings: HashMap<Str, Binding>,
    users: HashMap<Str, Bound>,
    groups: HashMap<Str, Bound>,
}

struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// What one subject is bound to: roles, each with the names of the bindings that give it.
type Bound = BTreeMap<RoleRef, BTreeSet<Str>>;

/// The binding that allowed something, as the reason says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Empty for a ClusterRoleBinding.
    namespace: Str,
    binding: Str,
    role: RoleRef,
    subject: Str,
}

/// Everything somebody may do, as far as it can be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Whether there may be more.
    pub incomplete: bool,
    /// What went wrong while listing.
    pub error: Option<String>,
}

impl Index {
    /// An index of these objects; those of other kinds are left out.
    pub fn from_objects<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let index = Index::default();
        for object in objects {
            if let Some(kind) = object.str_at(&["kind"]).and_then(Kind::parse) {
                index.apply(kind, None, Some(object));
            }
        }
        index
    }

    /// Follows a change: created (`old` is none), updated, or deleted (`new` is none).
    pub fn apply(&self, kind: Kind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let (namespace, name) = (Str::from(meta::namespace(object)), Str::from(meta::name(object)));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let State { cluster_roles, roles, scopes } = &mut *state;
        match kind {
            Kind::ClusterRole => set(cluster_roles, name, new),
            Kind::Role => {
                let here = roles.entry(namespace.clone()).or_default();
                set(here, name, new);
                if here.is_empty() {
                    roles.remove(&namespace);
                }
            }
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                let namespace = if kind == Kind::RoleBinding { namespace } else { Str::default() };
                let scope = scopes.entry(namespace.clone()).or_default();
                scope.remove(&namespace, &name);
                if let Some(new) = new {
                    let subjects = new.list_at(&["subjects"]).iter().map(Subject::from_value).collect();
                    scope.insert(&namespace, name, Binding { role: RoleRef::of(new), subjects });
                }
                if scope.bindings.is_empty() {
                    scopes.remove(&namespace);
                }
            }
        }
    }

    /// Whether somebody is allowed something: allow, or no opinion with what is wrong with the bindings met on the way.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Answer {
        let state = self.read();
        let mut missing: Vec<String> = Vec::new();
        for scope in scopes_of(&attributes.namespace) {
            for (role, bindings) in state.bound(user, scope) {
                match state.rules(role, scope) {
                    Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                        let granted = state.granted(user, scope, role, bindings);
                        return Answer::allow(Reason::Granted(granted));
                    }
                    Some(_) => {}
                    None => missing.push(role.missing()),
                }
            }
        }
        if missing.is_empty() {
            return Answer { reason: Reason::None, ..Answer::no_opinion("") };
        }
        Answer::no_opinion(format_smolstr!("RBAC: {}", aggregate(missing)))
    }

    /// Every rule that binds somebody in a namespace (or cluster-wide, with none), once per binding, until they are very many.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let (mut rules, mut missing, mut left) = (Vec::new(), Vec::new(), MOST_LISTED);
        self.each_binding(user, namespace, |role, given| match given {
            Some(given) => rules.extend(given.iter().take_while(|rule| take(&mut left, rule)).cloned()),
            None => missing.push(role.clone()),
        });
        let error = (!missing.is_empty()).then(|| aggregate(missing.iter().map(RoleRef::missing)));
        Rules { rules, incomplete: left == 0, error }
    }

    /// The rules that somebody holds in a namespace (or cluster-wide, with none), by role, each role once; and the roles that are
    /// bound but do not exist.
    pub(super) fn held(&self, user: &User, namespace: &str) -> (Vec<Arc<[Rule]>>, Vec<RoleRef>) {
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        let mut seen: HashSet<*const Rule> = HashSet::new();
        self.each_binding(user, namespace, |role, given| match given {
            Some(given) if seen.insert(given.as_ptr()) => all.push(Arc::clone(given)),
            Some(_) => {}
            None => missing.push(role.clone()),
        });
        (all, missing)
    }

    /// Calls `each` with every binding of somebody, in the order of their names, the cluster's first: its role and the rules of
    /// that, if there is such a role.
    fn each_binding(
        &self,
        user: &User,
        namespace: &str,
        mut each: impl FnMut(&RoleRef, Option<&Arc<[Rule]>>),
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

    /// The rules of the role that a binding in `namespace` (empty for a ClusterRoleBinding) refers to, if there is such a role.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Option<Arc<[Rule]>> {
        self.read().rules(role, namespace).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.read();
        write!(f, "Index({} cluster roles, {} scopes)", state.cluster_roles.len(), state.scopes.len())
    }
}

/// How many entries of rules are listed for somebody: thousands of bindings may give the same large role.
const MOST_LISTED: usize = 1_000_000;

/// Takes the entries of a rule from what may be listed; false, and nothing left, if there are not so many.
fn take(left: &mut usize, rule: &Rule) -> bool {
    *left = left.saturating_sub(rule.entries());
    *left > 0
}

/// The cluster's bindings come first, then the namespace's.
fn scopes_of(namespace: &str) -> impl Iterator<Item = &str> {
    std::iter::once("").chain((!namespace.is_empty()).then_some(namespace))
}

fn set(roles: &mut HashMap<Str, Arc<[Rule]>>, name: Str, role: Option<&Value>) {
    match role {
        Some(role) => roles.insert(name, Rule::all_of(role).into()),
        None => roles.remove(&name),
    };
}

impl State {
    /// What a user is bound to in a scope: by name first, then by each group.
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

    fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace)?.get(&role.name),
            _ => None,
        }
    }

    fn granted(&self, user: &User, scope: &str, role: &RoleRef, bindings: &BTreeSet<Str>) -> Granted {
        let binding = bindings.first().cloned().unwrap_or_default();
        let subjects = self.scopes.get(scope).and_then(|s| s.bindings.get(&binding)).map(|b| &b.subjects);
        let subject = subjects.and_then(|subjects| subjects.iter().find(|s| s.is(user, scope)));
        Granted {
            namespace: scope.into(),
            binding,
            role: role.clone(),
            subject: subject.map(|s| s.describe(scope)).unwrap_or_default().into(),
        }
    }
}

impl Scope {
    fn insert(&mut self, namespace: &str, name: Str, binding: Binding) {
        for subject in &binding.subjects {
            let bound = match subject.key(namespace) {
                Some(Key::User(user)) => self.users.entry(user).or_default(),
                Some(Key::Group(group)) => self.groups.entry(group).or_default(),
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
                Some(Key::User(user)) => unbind(&mut self.users, &user, &binding.role, name),
                Some(Key::Group(group)) => unbind(&mut self.groups, &group, &binding.role, name),
                None => {}
            }
        }
    }
}

fn unbind(subjects: &mut HashMap<Str, Bound>, subject: &Str, role: &RoleRef, binding: &Str) {
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

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Granted { namespace, binding, role, subject } = self;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {} of {role} to {subject}", quote(binding))
        } else {
            let binding = quote(&format!("{binding}/{namespace}"));
            write!(f, "RoleBinding {binding} of {role} to {subject}")
        }
    }
}
