//! Row of the `scheduling.k8s.io` group.

use super::{KindBehavior, Resource};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    ..Resource::cluster(KindBehavior {
        defaults: Some(defaults::cluster::priority_class),
        rules: Some(validation::cluster::PRIORITY_CLASS),
        strategy: Some(strategy::PRIORITY_CLASS),
        warnings: None,
        status_warnings: None,
        columns: Some(print::scheduling::PRIORITY_CLASS),
    })
}];
