//! Row of the `coordination.k8s.io` group.

use super::{KindBehavior, Resource};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    ..Resource::namespaced(KindBehavior {
        defaults: None,
        rules: Some(validation::cluster::LEASE),
        strategy: Some(strategy::LEASE),
        warnings: None,
        status_warnings: None,
        columns: Some(print::coordination::LEASE),
    })
}];
