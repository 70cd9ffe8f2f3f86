//! Row of the `policy` group. `Eviction` has no row: it exists only as a subresource of pods.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    subresources: &[SubresourceRow::status("PodDisruptionBudget")],
    ..Resource::namespaced(KindBehavior {
        defaults: None,
        rules: Some(validation::policy::POD_DISRUPTION_BUDGET),
        strategy: Some(strategy::POD_DISRUPTION_BUDGET),
        warnings: None,
        status_warnings: None,
        columns: Some(print::policy::POD_DISRUPTION_BUDGET),
    })
}];
