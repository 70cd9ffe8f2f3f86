//! Role-based access control over the stored roles and bindings.
//!
//! [`Index`] follows Role, ClusterRole, RoleBinding and ClusterRoleBinding objects and answers from subject to role to rules,
//! so that a decision meets only the bindings of the one who asks. [`escalation`] decides whether somebody may hand out rules,
//! [`aggregation`] unites roles, [`bootstrap`] is what a new cluster begins with and [`reconcile`] brings an old one up to it.

pub mod aggregation;
pub mod bootstrap;
pub mod escalation;
mod held;
mod index;
pub mod reconcile;
mod rule;
mod subject;

pub use index::{Granted, Index, Kind, Rules};
pub(crate) use rule::url_covers;
pub use rule::{Rule, everything};
pub use subject::{RoleRef, Subject};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
