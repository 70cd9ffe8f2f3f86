//! Row of the `storagemigration.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "storagemigration.k8s.io",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    singular: "storageversionmigration",
    hashed_version: Some("v1beta1"),
    subresources: &[SubresourceRow::status("StorageVersionMigration")],
    ..Resource::cluster(KindBehavior {
        defaults: None,
        rules: Some(validation::storagemigration::MIGRATION),
        strategy: Some(strategy::STORAGE_VERSION_MIGRATION),
        warnings: None,
        status_warnings: None,
        columns: Some(print::storagemigration::STORAGE_VERSION_MIGRATION),
    })
}];
