//! `policy`. (`Eviction` is here too, but only as a subresource of pods.)

use super::{Resource, Subresource};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    subresources: &[Subresource::status("PodDisruptionBudget")],
    ..Resource::NAMESPACED
}];
