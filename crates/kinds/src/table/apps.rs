//! Rows of the `apps` group.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        categories: &[],
        ..workload(KindBehavior {
            defaults: None,
            rules: Some(validation::apps::CONTROLLER_REVISION),
            strategy: Some(strategy::CONTROLLER_REVISION),
            warnings: None,
            status_warnings: None,
            columns: Some(print::apps::CONTROLLER_REVISION),
        })
    },
    Resource {
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        subresources: &[SubresourceRow::status("DaemonSet")],
        ..workload(KindBehavior {
            defaults: Some(defaults::apps::daemon_set),
            rules: Some(validation::apps::DAEMON_SET),
            strategy: Some(strategy::DAEMON_SET),
            warnings: Some(warnings::daemon_set),
            status_warnings: None,
            columns: Some(print::apps::DAEMON_SET),
        })
    },
    Resource {
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("Deployment")],
        ..workload(KindBehavior {
            defaults: Some(defaults::apps::deployment),
            rules: Some(validation::apps::DEPLOYMENT),
            strategy: Some(strategy::DEPLOYMENT),
            warnings: Some(warnings::deployment),
            status_warnings: None,
            columns: Some(print::apps::DEPLOYMENT),
        })
    },
    Resource {
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("ReplicaSet")],
        ..workload(KindBehavior {
            defaults: Some(defaults::apps::replica_set),
            rules: Some(validation::apps::REPLICA_SET),
            strategy: Some(strategy::REPLICA_SET),
            warnings: Some(warnings::replica_set),
            status_warnings: None,
            columns: Some(print::apps::REPLICA_SET),
        })
    },
    Resource {
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("StatefulSet")],
        ..workload(KindBehavior {
            defaults: Some(defaults::apps::stateful_set),
            rules: Some(validation::stateful_set::STATEFUL_SET),
            strategy: Some(strategy::STATEFUL_SET),
            warnings: Some(warnings::stateful_set),
            status_warnings: None,
            columns: Some(print::apps::STATEFUL_SET),
        })
    },
];

const fn workload(behavior: KindBehavior) -> Resource {
    Resource { group: "apps", categories: &["all"], ..Resource::namespaced(behavior) }
}
