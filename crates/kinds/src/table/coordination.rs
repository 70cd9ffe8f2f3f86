//! Rows of the `coordination.k8s.io` group.

use super::{KindBehavior, KindStorage, Resource, VersionRow};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "LeaseCandidate",
        plural: "leasecandidates",
        singular: "leasecandidate",
        versions: &[
            VersionRow::deprecated(
                "v1beta1",
                "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+",
            ),
            VersionRow::deprecated(
                "v1alpha2",
                "coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        storage: KindStorage::Own("v1beta1"),
        ..namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::coordination::LEASE_CANDIDATE),
            strategy: Some(strategy::LEASE_CANDIDATE),
            warnings: None,
            status_warnings: None,
            columns: Some(print::coordination::LEASE_CANDIDATE),
        })
    },
    Resource {
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        ..namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::coordination::LEASE),
            strategy: Some(strategy::LEASE),
            warnings: None,
            status_warnings: None,
            columns: Some(print::coordination::LEASE),
        })
    },
];

const fn namespaced(behavior: KindBehavior) -> Resource {
    Resource { group: "coordination.k8s.io", ..Resource::namespaced(behavior) }
}
