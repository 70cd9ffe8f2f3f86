//! `storagemigration.k8s.io`.

use super::{Resource, Storage, Subresource};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "storagemigration.k8s.io",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    singular: "storageversionmigration",
    storage: Storage::Own("v1beta1"),
    subresources: &[Subresource::status("StorageVersionMigration")],
    unconditional_update: false,
    ..Resource::CLUSTER
}];
