//! Row of the `discovery.k8s.io` group.

use super::{KindBehavior, Resource};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    ..Resource::namespaced(KindBehavior {
        defaults: Some(defaults::networking::endpoint_slice),
        rules: Some(validation::endpoint_slice::ENDPOINT_SLICE),
        strategy: Some(strategy::ENDPOINT_SLICE),
        warnings: Some(warnings::endpoint_slice),
        status_warnings: None,
        columns: Some(print::discovery::ENDPOINT_SLICE),
    })
}];
