//! `discovery.k8s.io`.

use super::{Generation, Resource};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    generation: Generation::AllButMetadata,
    ..Resource::NAMESPACED
}];
