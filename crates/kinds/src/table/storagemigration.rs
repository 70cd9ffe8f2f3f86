//! `storagemigration.k8s.io`.

use super::{Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "storagemigration.k8s.io",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    singular: "storageversionmigration",
    hashed_version: Some("v1beta1"),
    subresources: &[SubresourceRow::status("StorageVersionMigration")],
    ..Resource::CLUSTER
}];
