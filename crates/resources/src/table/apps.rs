//! `apps`.

use super::{Resource, Subresource};

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
        subresources: &[Subresource::status("DaemonSet")],
        ..WORKLOAD
    },
    Resource {
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        subresources: &[Subresource::scale(), Subresource::status("Deployment")],
        ..WORKLOAD
    },
    Resource {
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        subresources: &[Subresource::scale(), Subresource::status("ReplicaSet")],
        ..WORKLOAD
    },
    Resource {
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        subresources: &[Subresource::scale(), Subresource::status("StatefulSet")],
        ..WORKLOAD
    },
];

const WORKLOAD: Resource = Resource { group: "apps", categories: &["all"], ..Resource::NAMESPACED };
