//! Rows of the `resource.k8s.io` group: device classes, claims, and the slices that publish devices.

use super::{
    KindBehavior, KindStorage, Resource, Scope, SelectableField, SelectableFields, SubresourceRow, VersionRow,
};
use crate::strategy::table as strategy;
use crate::{convert, defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "DeviceClass",
        plural: "deviceclasses",
        singular: "deviceclass",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+",
            ),
            VersionRow::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        returns_deleted: true,
        ..cluster(KindBehavior { defaults: None, rules: Some(validation::resource::DEVICE_CLASS), strategy: Some(strategy::DEVICE_CLASS), warnings: None, status_warnings: None, columns: Some(print::resource::DEVICE_CLASS) }) },
    Resource {
        kind: "DeviceTaintRule",
        plural: "devicetaintrules",
        singular: "devicetaintrule",
        versions: &[VersionRow::new("v1"), VersionRow::new("v1beta2").returning_deleted(),
            VersionRow::deprecated(
                "v1alpha3",
                "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
            ).returning_deleted()],
        hashed_version: Some("v1beta2"),
        subresources: &[SubresourceRow::status("DeviceTaintRule")],
        ..cluster(KindBehavior { defaults: None, rules: Some(validation::resource::DEVICE_TAINT_RULE), strategy: Some(strategy::DEVICE_TAINT_RULE), warnings: None, status_warnings: None, columns: Some(print::resource::DEVICE_TAINT_RULE) }) },
    Resource {
        kind: "ResourceClaim",
        plural: "resourceclaims",
        singular: "resourceclaim",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
            ),
            VersionRow::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
            ).converted(convert::resource::claim_to_v1, convert::resource::claim_from_v1),
        ],
        scope: Scope::Namespaced,
        subresources: &[SubresourceRow::status("ResourceClaim")],
        returns_deleted: true,
        ..cluster(KindBehavior { defaults: Some(defaults::cluster::resource_claim), rules: Some(validation::resource_claim::CLAIM), strategy: Some(strategy::RESOURCE_CLAIM), warnings: None, status_warnings: None, columns: Some(print::resource::RESOURCE_CLAIM) }) },
    Resource {
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        singular: "resourceclaimtemplate",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 ResourceClaimTemplate is deprecated in v1.36+, unavailable in v1.39+",
            ),
            VersionRow::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 ResourceClaimTemplate is deprecated in v1.35+, unavailable in v1.38+",
            ).converted(convert::resource::template_to_v1, convert::resource::template_from_v1),
        ],
        scope: Scope::Namespaced,
        returns_deleted: true,
        ..cluster(KindBehavior { defaults: Some(defaults::cluster::resource_claim_template), rules: Some(validation::resource_claim::TEMPLATE), strategy: Some(strategy::RESOURCE_CLAIM_TEMPLATE), warnings: None, status_warnings: None, columns: Some(print::resource::RESOURCE_CLAIM_TEMPLATE) }) },
    Resource {
        kind: "ResourcePoolStatusRequest",
        plural: "resourcepoolstatusrequests",
        singular: "resourcepoolstatusrequest",
        versions: &[VersionRow::new("v1alpha3")],
        storage: KindStorage::Own("v1alpha3"),
        subresources: &[SubresourceRow::status("ResourcePoolStatusRequest")],
        returns_deleted: true,
        ..cluster(KindBehavior { defaults: Some(defaults::cluster::resource_pool_status_request), rules: Some(validation::resource_pool_status::STATUS_REQUEST), strategy: Some(strategy::RESOURCE_POOL_STATUS_REQUEST), warnings: None, status_warnings: None, columns: Some(print::resource::RESOURCE_POOL_STATUS_REQUEST) }) },
    Resource {
        kind: "ResourceSlice",
        plural: "resourceslices",
        singular: "resourceslice",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta2",
                "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
            ),
            VersionRow::deprecated(
                "v1beta1",
                "resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+",
            ).converted(convert::resource::slice_to_v1, convert::resource::slice_from_v1),
        ],
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField::new("spec.nodeName", &[&["spec", "nodeName"]]),
            SelectableField::new("spec.driver", &[&["spec", "driver"]]),
            SelectableField::new("spec.pool.name", &[&["spec", "pool", "name"]]),
        ]),
        returns_deleted: true,
        ..cluster(KindBehavior { defaults: None, rules: Some(validation::resource_slice::SLICE), strategy: Some(strategy::RESOURCE_SLICE), warnings: Some(warnings::resource_slice), status_warnings: None, columns: Some(print::resource::RESOURCE_SLICE) }) },
];

const fn cluster(behavior: KindBehavior) -> Resource {
    Resource { group: "resource.k8s.io", ..Resource::cluster(behavior) }
}
