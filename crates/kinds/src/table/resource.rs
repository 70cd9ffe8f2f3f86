//! `resource.k8s.io`: devices, claims on them and the slices that offer them.

use super::{Field, Fields, Resource, Scope, SubresourceRow, Version};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "DeviceClass",
        plural: "deviceclasses",
        singular: "deviceclass",
        versions: &[
            Version::new("v1"),
            Version::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+",
            ),
            Version::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "DeviceTaintRule",
        plural: "devicetaintrules",
        singular: "devicetaintrule",
        versions: &[Version::new("v1"), Version::new("v1beta2").returning_deleted()],
        hashed_version: Some("v1beta2"),
        subresources: &[SubresourceRow::status("DeviceTaintRule")],
        ..CLUSTER
    },
    Resource {
        kind: "ResourceClaim",
        plural: "resourceclaims",
        singular: "resourceclaim",
        versions: &[
            Version::new("v1"),
            Version::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
            ),
            Version::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        scope: Scope::Namespaced,
        subresources: &[SubresourceRow::status("ResourceClaim")],
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        singular: "resourceclaimtemplate",
        versions: &[
            Version::new("v1"),
            Version::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 ResourceClaimTemplate is deprecated in v1.36+, unavailable in v1.39+",
            ),
            Version::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 ResourceClaimTemplate is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        scope: Scope::Namespaced,
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "ResourceSlice",
        plural: "resourceslices",
        singular: "resourceslice",
        versions: &[
            Version::new("v1"),
            Version::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
            ),
            Version::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        fields: Fields::These(&[
            Field::NAME,
            Field::new("spec.nodeName", &[&["spec", "nodeName"]]),
            Field::new("spec.driver", &[&["spec", "driver"]]),
            Field::new("spec.pool.name", &[&["spec", "pool", "name"]]),
        ]),
        returns_deleted: true,
        ..CLUSTER
    },
];

const CLUSTER: Resource = Resource { group: "resource.k8s.io", ..Resource::CLUSTER };
