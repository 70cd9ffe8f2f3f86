//! Role-based access control.
//!
//! [`RbacIndex`] tracks Role, ClusterRole, RoleBinding and ClusterRoleBinding objects, indexed by subject, so
//! that a decision looks only at the bindings of the user. [`escalation`] checks whether a user may grant
//! rules, [`aggregation`] computes aggregated roles, [`bootstrap`] has the default roles of a cluster, and
//! [`reconcile`] updates stored roles to them.

pub mod aggregation;
pub mod bootstrap;
pub mod escalation;
mod held_rules;
mod index;
mod listing;
pub mod reconcile;
mod rule;
mod subject;

pub use index::{AllowingBinding, RbacIndex, RbacKind};
pub use listing::SubjectRules;
pub use rule::{PolicyRule, everything};
pub use subject::{RbacSubject, RoleRef};
