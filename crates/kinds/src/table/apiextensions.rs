//! Row of the `apiextensions.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    directory: Some("apiextensions.k8s.io/customresourcedefinitions"),
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    hashed_version: Some("v1beta1"),
    subresources: &[SubresourceRow::status("CustomResourceDefinition")],
    ..Resource::cluster(KindBehavior {
        defaults: Some(defaults::apiextensions::custom_resource_definition),
        rules: Some(validation::apiextensions::CUSTOM_RESOURCE_DEFINITION),
        strategy: Some(strategy::CUSTOM_RESOURCE_DEFINITION),
        warnings: Some(warnings::custom_resource_definition),
        status_warnings: None,
        columns: Some(print::apiextensions::CUSTOM_RESOURCE_DEFINITION),
    })
}];
