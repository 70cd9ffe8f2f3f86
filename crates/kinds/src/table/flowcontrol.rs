//! `flowcontrol.apiserver.k8s.io`.

use super::{Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "FlowSchema",
        plural: "flowschemas",
        singular: "flowschema",
        subresources: &[SubresourceRow::status("FlowSchema")],
        ..CLUSTER
    },
    Resource {
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        singular: "prioritylevelconfiguration",
        subresources: &[SubresourceRow::status("PriorityLevelConfiguration")],
        ..CLUSTER
    },
];

const CLUSTER: Resource = Resource { group: "flowcontrol.apiserver.k8s.io", ..Resource::CLUSTER };
