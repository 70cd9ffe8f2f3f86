//! `flowcontrol.apiserver.k8s.io`.

use super::{Resource, Subresource};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "FlowSchema",
        plural: "flowschemas",
        singular: "flowschema",
        subresources: &[Subresource::status("FlowSchema")],
        ..CLUSTER
    },
    Resource {
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        singular: "prioritylevelconfiguration",
        subresources: &[Subresource::status("PriorityLevelConfiguration")],
        ..CLUSTER
    },
];

const CLUSTER: Resource = Resource { group: "flowcontrol.apiserver.k8s.io", ..Resource::CLUSTER };
