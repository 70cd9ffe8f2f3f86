//! `apiextensions.k8s.io`.

use super::{Resource, SubresourceRow};

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
    ..Resource::CLUSTER
}];
