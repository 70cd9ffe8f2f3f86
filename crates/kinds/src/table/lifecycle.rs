//! Rows of the `lifecycle.k8s.io` group: requests to evict a pod, and the evictions that follow from them.

use api::features::Feature;

use super::{KindBehavior, KindStorage, Resource, SubresourceRow, VersionRow};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "EvictionRequest",
        plural: "evictionrequests",
        singular: "evictionrequest",
        subresources: &[SubresourceRow::status("EvictionRequest")],
        ..namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::lifecycle::EVICTION_REQUEST),
            strategy: Some(strategy::EVICTION_REQUEST),
            warnings: None,
            status_warnings: None,
            columns: Some(print::lifecycle::EVICTION_REQUEST),
        })
    },
    Resource {
        kind: "Eviction",
        plural: "evictions",
        singular: "eviction",
        subresources: &[SubresourceRow::status("Eviction")],
        ..namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::lifecycle::EVICTION),
            strategy: Some(strategy::EVICTION),
            warnings: None,
            status_warnings: None,
            columns: Some(print::lifecycle::EVICTION),
        })
    },
];

const VERSIONS: &[VersionRow] = &[VersionRow::new("v1alpha1")];

const fn namespaced(behavior: KindBehavior) -> Resource {
    Resource {
        group: "lifecycle.k8s.io",
        versions: VERSIONS,
        storage: KindStorage::Own("v1alpha1"),
        feature: Some(Feature::EvictionRequestApi),
        ..Resource::namespaced(behavior)
    }
}
