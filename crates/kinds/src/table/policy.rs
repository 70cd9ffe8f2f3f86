//! `policy`. (`Eviction` is here too, but only as a subresource of pods.)

use super::{Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    subresources: &[SubresourceRow::status("PodDisruptionBudget")],
    ..Resource::NAMESPACED
}];
