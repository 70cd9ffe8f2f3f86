//! Rows of the `flowcontrol.apiserver.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "FlowSchema",
        plural: "flowschemas",
        singular: "flowschema",
        subresources: &[SubresourceRow::status("FlowSchema")],
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::flow_schema),
            rules: Some(validation::flowcontrol::FLOW_SCHEMA),
            strategy: Some(strategy::FLOW_SCHEMA),
            warnings: None,
            status_warnings: None,
            columns: Some(print::flowcontrol::FLOW_SCHEMA),
        })
    },
    Resource {
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        singular: "prioritylevelconfiguration",
        subresources: &[SubresourceRow::status("PriorityLevelConfiguration")],
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::priority_level),
            rules: Some(validation::flowcontrol::PRIORITY_LEVEL),
            strategy: Some(strategy::PRIORITY_LEVEL_CONFIGURATION),
            warnings: None,
            status_warnings: None,
            columns: Some(print::flowcontrol::PRIORITY_LEVEL_CONFIGURATION),
        })
    },
];

const fn cluster(behavior: KindBehavior) -> Resource {
    Resource { group: "flowcontrol.apiserver.k8s.io", ..Resource::cluster(behavior) }
}
