//! [`Subject`] and [`RoleRef`]: the two ends of a binding.

use std::fmt;

use api::field::quote;
use authn::{User, service_account};
use value::{Str, Value};

/// Whom a binding binds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A user by name.
    User(Str),
    /// A group by name.
    Group(Str),
    /// A service account.
    ServiceAccount {
        /// Its namespace; empty is the binding's own.
        namespace: Str,
        /// Its name.
        name: Str,
    },
    /// A kind that binds nobody.
    Other {
        /// The kind.
        kind: Str,
        /// The name.
        name: Str,
    },
}

impl Subject {
    /// Reads a binding's subject.
    pub fn from_value(value: &Value) -> Self {
        let text = |field: &str| Str::from(value.str_at(&[field]).unwrap_or_default());
        let name = text("name");
        match value.str_at(&["kind"]).unwrap_or_default() {
            "User" => Subject::User(name),
            "Group" => Subject::Group(name),
            "ServiceAccount" => Subject::ServiceAccount { namespace: text("namespace"), name },
            kind => Subject::Other { kind: kind.into(), name },
        }
    }

    /// Whom the index files a binding in `scope` under (`scope` is empty for a ClusterRoleBinding): a user or a group.
    pub(super) fn key(&self, scope: &str) -> Option<Key> {
        match self {
            Subject::User(name) => Some(Key::User(name.clone())),
            Subject::Group(name) => Some(Key::Group(name.clone())),
            Subject::ServiceAccount { namespace, name } => {
                let namespace = if namespace.is_empty() { scope } else { namespace };
                (!namespace.is_empty()).then(|| Key::User(service_account::username(namespace, name)))
            }
            Subject::Other { .. } => None,
        }
    }

    /// Whether the subject of a binding in `scope` is this user.
    pub(super) fn is(&self, user: &User, scope: &str) -> bool {
        match self.key(scope) {
            Some(Key::User(name)) => name == user.name,
            Some(Key::Group(name)) => user.is_in(&name),
            None => false,
        }
    }

    /// As reasons show it; service accounts as name, slash, namespace.
    pub(super) fn describe(&self, scope: &str) -> String {
        match self {
            Subject::User(name) => format!("User {}", quote(name)),
            Subject::Group(name) => format!("Group {}", quote(name)),
            Subject::ServiceAccount { namespace, name } => {
                let namespace = if namespace.is_empty() { scope } else { namespace };
                format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")))
            }
            Subject::Other { kind, name } => format!("{kind} {}", quote(name)),
        }
    }
}

/// What a binding is filed under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    User(Str),
    Group(Str),
}

/// Which role a binding gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: Str,
    /// The role's name.
    pub name: Str,
}

impl RoleRef {
    /// Reads a binding's `roleRef`.
    pub fn of(binding: &Value) -> Self {
        let text = |field: &str| Str::from(binding.str_at(&["roleRef", field]).unwrap_or_default());
        RoleRef { kind: text("kind"), name: text("name") }
    }

    /// As errors about a role that does not exist name it.
    pub(super) fn missing(&self) -> String {
        match self.kind.as_str() {
            "Role" => format!("role.{} {} not found", super::GROUP, quote(&self.name)),
            "ClusterRole" => format!("clusterrole.{} {} not found", super::GROUP, quote(&self.name)),
            kind => format!("unsupported role reference kind: {}", quote(kind)),
        }
    }
}

impl fmt::Display for RoleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, quote(&self.name))
    }
}
