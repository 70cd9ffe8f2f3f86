//! `storage.k8s.io`.

use super::{Resource, Scope, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        subresources: &[SubresourceRow::status("CSINode")],
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        scope: Scope::Namespaced,
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
        subresources: &[SubresourceRow::status("VolumeAttachment")],
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
