//! The namespaces that every cluster has. They are declared only here.

pub const DEFAULT: &str = "default";
/// Holds the objects of the control plane.
pub const SYSTEM: &str = "kube-system";
/// Holds what clients without credentials may read.
pub const PUBLIC: &str = "kube-public";
/// Holds the leases of nodes.
pub const NODE_LEASE: &str = "kube-node-lease";
