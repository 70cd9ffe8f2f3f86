//! `storagemigration.k8s.io`.

use super::{Resource, Subresource};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "storagemigration.k8s.io",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    singular: "storageversionmigration",
    hashed_version: Some("v1beta1"),
    subresources: &[Subresource::status("StorageVersionMigration")],
    ..Resource::CLUSTER
}];
