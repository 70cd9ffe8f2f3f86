//! `scheduling.k8s.io`.

use super::Resource;

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    ..Resource::CLUSTER
}];
