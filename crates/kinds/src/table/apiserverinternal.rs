//! Row of the `internal.apiserver.k8s.io` group.

use super::{KindBehavior, KindStorage, Resource, SubresourceRow, VersionRow};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "internal.apiserver.k8s.io",
    kind: "StorageVersion",
    plural: "storageversions",
    singular: "storageversion",
    versions: &[VersionRow::new("v1alpha1")],
    storage: KindStorage::Own("v1alpha1"),
    subresources: &[SubresourceRow::status("StorageVersion")],
    ..Resource::cluster(KindBehavior {
        defaults: None,
        rules: Some(validation::storage_version::STORAGE_VERSION),
        strategy: Some(strategy::STORAGE_VERSION),
        warnings: None,
        status_warnings: None,
        columns: Some(print::apiserverinternal::STORAGE_VERSION),
    })
}];
