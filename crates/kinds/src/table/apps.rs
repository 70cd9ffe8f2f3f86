//! `apps`.

use super::{Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        categories: &[],
        ..WORKLOAD
    },
    Resource {
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        subresources: &[SubresourceRow::status("DaemonSet")],
        ..WORKLOAD
    },
    Resource {
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("Deployment")],
        ..WORKLOAD
    },
    Resource {
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("ReplicaSet")],
        ..WORKLOAD
    },
    Resource {
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("StatefulSet")],
        ..WORKLOAD
    },
];

const WORKLOAD: Resource = Resource { group: "apps", categories: &["all"], ..Resource::NAMESPACED };
