//! `apiregistration.k8s.io`.

use super::{NameRule, Resource, Subresource};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    subresources: &[Subresource::status("APIService")],
    unconditional_update: false,
    name: NameRule::PathSegment,
    ..Resource::CLUSTER
}];
