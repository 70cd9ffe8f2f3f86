//! Rows of the `scheduling.k8s.io` group: priority classes, workloads, and the groups of pods that are scheduled together.

use api::features::Feature;

use super::{KindBehavior, KindStorage, Resource, SubresourceRow, VersionRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation};

const GROUP: &str = "scheduling.k8s.io";

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        group: GROUP,
        versions: &[VersionRow::new("v1alpha3")],
        kind: "CompositePodGroup",
        plural: "compositepodgroups",
        singular: "compositepodgroup",
        subresources: &[SubresourceRow::status("CompositePodGroup")],
        storage: KindStorage::Own("v1alpha3"),
        feature: Some(Feature::CompositePodGroup),
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::cluster::pod_group),
            rules: Some(validation::scheduling::COMPOSITE_POD_GROUP),
            strategy: Some(strategy::COMPOSITE_POD_GROUP),
            warnings: None,
            status_warnings: None,
            columns: Some(print::scheduling::COMPOSITE_POD_GROUP),
        })
    },
    Resource {
        kind: "PodGroup",
        plural: "podgroups",
        singular: "podgroup",
        subresources: &[SubresourceRow::status("PodGroup")],
        ..workload_kind(KindBehavior {
            defaults: Some(defaults::cluster::pod_group),
            rules: Some(validation::scheduling::POD_GROUP),
            strategy: Some(strategy::POD_GROUP),
            warnings: None,
            status_warnings: None,
            columns: Some(print::scheduling::POD_GROUP),
        })
    },
    Resource {
        group: GROUP,
        kind: "PriorityClass",
        plural: "priorityclasses",
        singular: "priorityclass",
        short_names: &["pc"],
        ..Resource::cluster(KindBehavior {
            defaults: Some(defaults::cluster::priority_class),
            rules: Some(validation::cluster::PRIORITY_CLASS),
            strategy: Some(strategy::PRIORITY_CLASS),
            warnings: None,
            status_warnings: None,
            columns: Some(print::scheduling::PRIORITY_CLASS),
        })
    },
    Resource {
        kind: "Workload",
        plural: "workloads",
        singular: "workload",
        ..workload_kind(KindBehavior {
            defaults: None,
            rules: Some(validation::scheduling::WORKLOAD),
            strategy: Some(strategy::WORKLOAD),
            warnings: None,
            status_warnings: None,
            columns: Some(print::scheduling::WORKLOAD),
        })
    },
];

/// The versions of a kind of the feature `GenericWorkload`. Both have the same fields.
const WORKLOAD_VERSIONS: &[VersionRow] = &[VersionRow::new("v1beta1"), VersionRow::new("v1alpha3")];

const fn workload_kind(behavior: KindBehavior) -> Resource {
    Resource {
        group: GROUP,
        versions: WORKLOAD_VERSIONS,
        storage: KindStorage::Own("v1beta1"),
        feature: Some(Feature::GenericWorkload),
        ..Resource::namespaced(behavior)
    }
}
