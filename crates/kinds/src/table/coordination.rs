//! `coordination.k8s.io`.

use super::Resource;

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    ..Resource::NAMESPACED
}];
