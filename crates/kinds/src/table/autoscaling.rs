//! `autoscaling`. (`Scale` is here too, but only as a subresource of others.)

use super::{Resource, Storage, SubresourceRow, Version};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "autoscaling",
    versions: &[Version::new("v2"), Version::new("v1")],
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[SubresourceRow::status("HorizontalPodAutoscaler")],
    storage: Storage::Own("v2"),
    ..Resource::NAMESPACED
}];
