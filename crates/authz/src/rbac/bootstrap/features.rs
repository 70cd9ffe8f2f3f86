//! Default roles and rules of features, which exist only while the features are on.

use api::features::Feature;

use super::table::{Allow, CORE, READ, Role, WRITE, controller, on};

/// Rules that a feature adds to a role.
pub(super) struct FeatureRules {
    pub(super) feature: Feature,
    pub(super) role: &'static str,
    pub(super) rules: &'static [Allow],
}

const fn adds(feature: Feature, role: &'static str, rules: &'static [Allow]) -> FeatureRules {
    FeatureRules { feature, role, rules }
}

const SCHEDULING: &str = "scheduling.k8s.io";
const LIFECYCLE: &str = "lifecycle.k8s.io";
const EDIT: &str = "system:aggregate-to-edit";
const VIEW: &str = "system:aggregate-to-view";
const SCHEDULER: &str = "system:kube-scheduler";

/// In the order in which the rules follow those of the role.
pub(super) const RULES: &[FeatureRules] = &[
    adds(Feature::GenericWorkload, EDIT, &[on(WRITE, SCHEDULING, "podgroups workloads")]),
    adds(Feature::CompositePodGroup, EDIT, &[on(WRITE, SCHEDULING, "compositepodgroups")]),
    // Only the controller writes evictions.
    adds(Feature::EvictionRequestApi, EDIT, &[on(WRITE, LIFECYCLE, "evictionrequests")]),
    adds(Feature::GenericWorkload, VIEW, &[on(READ, SCHEDULING, "podgroups podgroups/status workloads")]),
    adds(Feature::CompositePodGroup, VIEW, &[on(READ, SCHEDULING, "compositepodgroups compositepodgroups/status")]),
    adds(Feature::EvictionRequestApi, VIEW, &[on(READ, LIFECYCLE, "evictionrequests evictions")]),
    adds(Feature::GenericWorkload, SCHEDULER, &[
        on(READ, SCHEDULING, "podgroups"),
        on("patch update", SCHEDULING, "podgroups/status"),
    ]),
    adds(Feature::CompositePodGroup, SCHEDULER, &[
        on(READ, SCHEDULING, "compositepodgroups"),
        on("patch update", SCHEDULING, "compositepodgroups/status"),
    ]),
];

/// Roles that exist only while a feature is on.
pub(super) const ROLES: &[(Feature, Role)] = &[(
    Feature::GenericWorkload,
    controller("podgroup-protection-controller", &[
        on("get list update watch", SCHEDULING, "podgroups"),
        on("get list watch", CORE, "pods"),
    ]),
)];
