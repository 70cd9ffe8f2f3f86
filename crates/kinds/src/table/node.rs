//! `node.k8s.io`.

use super::Resource;

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    ..Resource::CLUSTER
}];
