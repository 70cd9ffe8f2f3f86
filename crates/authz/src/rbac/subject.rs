//! [`RbacSubject`] and [`RoleRef`]: the two ends of a binding.

use std::fmt;

use api::field::quote;
use authn::service_account;
use value::{Str, Value};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RbacSubject {
    User(Str),
    Group(Str),
    ServiceAccount {
        /// Empty means the binding's own namespace.
        namespace: Str,
        name: Str,
    },
    /// A subject of an unknown kind, which matches no user.
    Other {
        kind: Str,
        name: Str,
    },
}

impl RbacSubject {
    pub fn from_value(value: &Value) -> Self {
        let text = |field: &str| Str::from(value.str_at(&[field]).unwrap_or_default());
        let name = text("name");
        match value.str_at(&["kind"]).unwrap_or_default() {
            "User" => RbacSubject::User(name),
            "Group" => RbacSubject::Group(name),
            "ServiceAccount" => RbacSubject::ServiceAccount { namespace: text("namespace"), name },
            kind => RbacSubject::Other { kind: kind.into(), name },
        }
    }

    /// The user or group under which the index stores a binding in `scope`, which is empty for a
    /// ClusterRoleBinding.
    pub(super) fn key(&self, scope: &str) -> Option<SubjectKey> {
        match self {
            RbacSubject::User(name) => Some(SubjectKey::User(name.clone())),
            RbacSubject::Group(name) => Some(SubjectKey::Group(name.clone())),
            RbacSubject::ServiceAccount { namespace, name } => {
                let namespace = if namespace.is_empty() { scope } else { namespace };
                (!namespace.is_empty()).then(|| SubjectKey::User(service_account::username(namespace, name)))
            }
            RbacSubject::Other { .. } => None,
        }
    }

    /// As in reasons; service accounts are formatted as `NAME/NAMESPACE`.
    pub(super) fn describe(&self, scope: &str) -> String {
        match self {
            RbacSubject::User(name) => format!("User {}", quote(name)),
            RbacSubject::Group(name) => format!("Group {}", quote(name)),
            RbacSubject::ServiceAccount { namespace, name } => {
                let namespace = if namespace.is_empty() { scope } else { namespace };
                format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")))
            }
            RbacSubject::Other { kind, name } => format!("{kind} {}", quote(name)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SubjectKey {
    User(Str),
    Group(Str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleRef {
    /// Either `Role` or `ClusterRole`.
    pub kind: Str,
    pub name: Str,
}

impl RoleRef {
    /// Reads a binding's `roleRef`.
    pub fn of(binding: &Value) -> Self {
        let text = |field: &str| Str::from(binding.str_at(&["roleRef", field]).unwrap_or_default());
        RoleRef { kind: text("kind"), name: text("name") }
    }

    /// The error message for a role that does not exist.
    pub(super) fn missing(&self) -> String {
        match self.kind.as_str() {
            "Role" => format!("role.{} {} not found", api::groups::RBAC, quote(&self.name)),
            "ClusterRole" => format!("clusterrole.{} {} not found", api::groups::RBAC, quote(&self.name)),
            kind => format!("unsupported role reference kind: {}", quote(kind)),
        }
    }
}

impl fmt::Display for RoleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, quote(&self.name))
    }
}
