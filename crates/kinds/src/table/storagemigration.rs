//! Row of the `storagemigration.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow, VersionRow};
use crate::strategy::table as strategy;
use crate::{print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "storagemigration.k8s.io",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    singular: "storageversionmigration",
    versions: &[
        VersionRow::new("v1"),
        VersionRow::deprecated(
            "v1beta1",
            "storagemigration.k8s.io/v1beta1 StorageVersionMigration is deprecated in v1.37+, unavailable in v1.40+; \
             use storagemigration.k8s.io/v1 StorageVersionMigration",
        ),
    ],
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
