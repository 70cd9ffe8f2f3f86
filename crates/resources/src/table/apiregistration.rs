//! `apiregistration.k8s.io`.

use super::{Resource, Subresource};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    directory: Some("apiregistration.k8s.io/apiservices"),
    singular: "apiservice",
    categories: &["api-extensions"],
    subresources: &[Subresource::status("APIService")],
    ..Resource::CLUSTER
}];
