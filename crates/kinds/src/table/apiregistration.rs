//! Row of the `apiregistration.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    directory: Some("apiregistration.k8s.io/apiservices"),
    singular: "apiservice",
    categories: &["api-extensions"],
    subresources: &[SubresourceRow::status("APIService")],
    ..Resource::cluster(KindBehavior {
        defaults: Some(defaults::apiextensions::api_service),
        rules: Some(validation::apiextensions::API_SERVICE),
        strategy: Some(strategy::API_SERVICE),
        warnings: None,
        status_warnings: None,
        columns: Some(print::apiregistration::API_SERVICE),
    })
}];
