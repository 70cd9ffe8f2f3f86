//! Rows of the `rbac.authorization.k8s.io` group.

use super::{KindBehavior, Resource, Scope};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::role_binding),
            rules: Some(validation::rbac::CLUSTER_ROLE_BINDING),
            strategy: Some(strategy::CLUSTER_ROLE_BINDING),
            warnings: None,
            status_warnings: None,
            columns: Some(print::rbac::CLUSTER_ROLE_BINDING),
        })
    },
    Resource {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::rbac::CLUSTER_ROLE),
            strategy: Some(strategy::CLUSTER_ROLE),
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
    Resource {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        ..namespaced(KindBehavior {
            defaults: Some(defaults::cluster::role_binding),
            rules: Some(validation::rbac::ROLE_BINDING),
            strategy: Some(strategy::ROLE_BINDING),
            warnings: None,
            status_warnings: None,
            columns: Some(print::rbac::ROLE_BINDING),
        })
    },
    Resource {
        kind: "Role",
        plural: "roles",
        singular: "role",
        ..namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::rbac::ROLE),
            strategy: Some(strategy::ROLE),
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
];

const fn namespaced(behavior: KindBehavior) -> Resource {
    Resource { group: "rbac.authorization.k8s.io", ..Resource::namespaced(behavior) }
}
const fn cluster(behavior: KindBehavior) -> Resource {
    Resource { scope: Scope::Cluster, ..namespaced(behavior) }
}
