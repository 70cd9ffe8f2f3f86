//! Row of the `autoscaling` group. `Scale` has no row: it exists only as a subresource of other kinds.

use super::{KindBehavior, KindStorage, Resource, SubresourceRow, VersionRow};
use crate::strategy::table as strategy;
use crate::{convert, defaults, print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "autoscaling",
    versions: &[
        VersionRow::new("v2"),
        VersionRow::new("v1").converted(convert::autoscaling::v1_to_v2, convert::autoscaling::v2_to_v1),
    ],
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[SubresourceRow::status("HorizontalPodAutoscaler")],
    storage: KindStorage::Own("v2"),
    ..Resource::namespaced(KindBehavior {
        defaults: Some(defaults::autoscaling::horizontal_pod_autoscaler),
        rules: Some(validation::autoscaling::HORIZONTAL_POD_AUTOSCALER),
        strategy: Some(strategy::HORIZONTAL_POD_AUTOSCALER),
        warnings: None,
        status_warnings: None,
        columns: Some(print::autoscaling::HORIZONTAL_POD_AUTOSCALER),
    })
}];
