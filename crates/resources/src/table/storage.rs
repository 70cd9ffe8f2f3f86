//! `storage.k8s.io`.

use super::{Generation, Resource, Scope, Subresource};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        generation: Generation::SpecFromZero,
        unconditional_update: false,
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        subresources: &[Subresource::status("CSINode")],
        unconditional_update: false,
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        scope: Scope::Namespaced,
        unconditional_update: false,
        ..CLUSTER
    },
    Resource {
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        subresources: &[Subresource::status("VolumeAttachment")],
        unconditional_update: false,
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        singular: "volumeattributesclass",
        short_names: &["vac"],
        returns_deleted: true,
        ..CLUSTER
    },
];

const CLUSTER: Resource = Resource { group: "storage.k8s.io", ..Resource::CLUSTER };
