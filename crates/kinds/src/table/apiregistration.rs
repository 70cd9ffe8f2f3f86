//! `apiregistration.k8s.io`.

use super::{Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    directory: Some("apiregistration.k8s.io/apiservices"),
    singular: "apiservice",
    categories: &["api-extensions"],
    subresources: &[SubresourceRow::status("APIService")],
    ..Resource::CLUSTER
}];
