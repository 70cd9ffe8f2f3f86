//! Rows of the `storage.k8s.io` group.

use super::{KindBehavior, Resource, Scope, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        returns_deleted: true,
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::csi_driver),
            rules: Some(validation::storage::CSI_DRIVER),
            strategy: Some(strategy::CSI_DRIVER),
            warnings: Some(warnings::csi_driver),
            status_warnings: None,
            columns: Some(print::storage::CSI_DRIVER),
        })
    },
    Resource {
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        subresources: &[SubresourceRow::status("CSINode")],
        returns_deleted: true,
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::storage::CSI_NODE),
            strategy: Some(strategy::CSI_NODE),
            warnings: None,
            status_warnings: None,
            columns: Some(print::storage::CSI_NODE),
        })
    },
    Resource {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        scope: Scope::Namespaced,
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::storage::CSI_STORAGE_CAPACITY),
            strategy: Some(strategy::CSI_STORAGE_CAPACITY),
            warnings: Some(warnings::csi_storage_capacity),
            status_warnings: None,
            columns: None,
        })
    },
    Resource {
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        returns_deleted: true,
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::storage_class),
            rules: Some(validation::storage::STORAGE_CLASS),
            strategy: Some(strategy::STORAGE_CLASS),
            warnings: Some(warnings::storage_class),
            status_warnings: None,
            columns: Some(print::storage::STORAGE_CLASS),
        })
    },
    Resource {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        subresources: &[SubresourceRow::status("VolumeAttachment")],
        returns_deleted: true,
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::volume_attachment),
            rules: Some(validation::storage::VOLUME_ATTACHMENT),
            strategy: Some(strategy::VOLUME_ATTACHMENT),
            warnings: None,
            status_warnings: None,
            columns: Some(print::storage::VOLUME_ATTACHMENT),
        })
    },
    Resource {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        singular: "volumeattributesclass",
        short_names: &["vac"],
        returns_deleted: true,
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::storage::VOLUME_ATTRIBUTES_CLASS),
            strategy: Some(strategy::VOLUME_ATTRIBUTES_CLASS),
            warnings: None,
            status_warnings: None,
            columns: Some(print::storage::VOLUME_ATTRIBUTES_CLASS),
        })
    },
];

const fn cluster(behavior: KindBehavior) -> Resource {
    Resource { group: "storage.k8s.io", ..Resource::cluster(behavior) }
}
