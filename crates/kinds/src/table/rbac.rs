//! `rbac.authorization.k8s.io`.

use super::{Resource, Scope};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        ..CLUSTER
    },
    Resource { kind: "ClusterRole", plural: "clusterroles", singular: "clusterrole", ..CLUSTER },
    Resource { kind: "RoleBinding", plural: "rolebindings", singular: "rolebinding", ..NAMESPACED },
    Resource { kind: "Role", plural: "roles", singular: "role", ..NAMESPACED },
];

const NAMESPACED: Resource = Resource { group: "rbac.authorization.k8s.io", ..Resource::NAMESPACED };
const CLUSTER: Resource = Resource { scope: Scope::Cluster, ..NAMESPACED };
