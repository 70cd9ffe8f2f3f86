//! `discovery.k8s.io`.

use super::Resource;

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    ..Resource::NAMESPACED
}];
