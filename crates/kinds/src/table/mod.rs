//! The resource table: every kind that Kubernetes 1.37 serves, also in the beta and alpha versions that can be enabled.
//!
//! [`GROUPS`] is the whole table, in the order in which discovery lists the groups. Each group has a file with one row
//! per kind. A row names everything about its kind: defaults, validation, strategy, warnings and columns
//! ([`KindBehavior`]), conversions between versions ([`VersionRow::converted`]) and the storage directory. A row that
//! omits one of them does not compile.
//!
//! The row does not contain the schema and the protobuf layout of the kind (`crates/schema/data/`), the internal types that its errors
//! quote (`crates/kinds/data/internal-kinds.txt`), the default roles (`crates/authz/src/rbac/bootstrap/`) and how quota counts it
//! (`crates/admission/src/plugins/resource_quota/`); nor what tests expect of it: columns (`crates/kinds/src/print/`), rejected objects
//! (`crates/kinds/tests/rules/`), discovery (`crates/documents/data/discovery.txt`). `CONTRIBUTING.md` lists what a new kind needs.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apiserverinternal;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod behavior;
mod certificates;
mod coordination;
mod core;
mod directory;
mod discovery;
mod events;
mod flowcontrol;
mod lifecycle;
mod networking;
#[cfg(test)]
mod new_kind_tests;
mod node;
mod policy;
pub mod priority;
mod rbac;
mod resource;
mod row;
mod scheduling;
mod served;
mod storage;
mod storagemigration;
#[cfg(test)]
mod tests;

pub use behavior::{KindBehavior, behavior};
pub use directory::{custom_directory, overlapping};
pub use row::{
    Conversion, KindStorage, Resource, Scope, SelectableField, SelectableFields, SubresourceRow, Verb,
    VersionRow, verbs,
};
pub use served::{RuntimeConfig, Served};

use crate::{defaults, print, validation};

#[derive(Debug)]
pub struct GroupRow {
    /// Empty for the core group.
    pub name: &'static str,
    /// The preferred version comes first.
    pub versions: &'static [&'static str],
    /// Kubernetes' own numbers for discovery: the priority of the group among groups, and those of `versions` within it. `None` for the group
    /// of APIServices, which has no APIService.
    pub priorities: Option<(i64, &'static [i64])>,
    /// Rows sorted by plural name.
    pub resources: &'static [Resource],
}

/// All groups, in discovery order.
pub static GROUPS: &[GroupRow] = &[
    GroupRow { name: "", versions: &["v1"], priorities: Some((18_000, &[1])), resources: core::RESOURCES },
    GroupRow {
        name: "apiregistration.k8s.io",
        versions: &["v1"],
        priorities: None,
        resources: apiregistration::RESOURCES,
    },
    GroupRow {
        name: "apps",
        versions: &["v1"],
        priorities: Some((17_800, &[15])),
        resources: apps::RESOURCES,
    },
    GroupRow {
        name: "events.k8s.io",
        versions: &["v1"],
        priorities: Some((17_750, &[15])),
        resources: events::RESOURCES,
    },
    GroupRow {
        name: "authentication.k8s.io",
        versions: &["v1"],
        priorities: Some((17_700, &[15])),
        resources: authentication::RESOURCES,
    },
    GroupRow {
        name: "authorization.k8s.io",
        versions: &["v1"],
        priorities: Some((17_600, &[15])),
        resources: authorization::RESOURCES,
    },
    GroupRow {
        name: "autoscaling",
        versions: &["v2", "v1"],
        priorities: Some((17_500, &[30, 15])),
        resources: autoscaling::RESOURCES,
    },
    GroupRow {
        name: "batch",
        versions: &["v1"],
        priorities: Some((17_400, &[15])),
        resources: batch::RESOURCES,
    },
    GroupRow {
        name: "certificates.k8s.io",
        versions: &["v1", "v1beta1"],
        priorities: Some((17_300, &[15, 9])),
        resources: certificates::RESOURCES,
    },
    GroupRow {
        name: "networking.k8s.io",
        versions: &["v1"],
        priorities: Some((17_200, &[15])),
        resources: networking::RESOURCES,
    },
    GroupRow {
        name: "policy",
        versions: &["v1"],
        priorities: Some((17_100, &[15])),
        resources: policy::RESOURCES,
    },
    GroupRow {
        name: "rbac.authorization.k8s.io",
        versions: &["v1"],
        priorities: Some((17_000, &[15])),
        resources: rbac::RESOURCES,
    },
    GroupRow {
        name: "storage.k8s.io",
        versions: &["v1"],
        priorities: Some((16_800, &[15])),
        resources: storage::RESOURCES,
    },
    GroupRow {
        name: "admissionregistration.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha1"],
        priorities: Some((16_700, &[15, 12, 9])),
        resources: admissionregistration::RESOURCES,
    },
    GroupRow {
        name: "apiextensions.k8s.io",
        versions: &["v1"],
        priorities: Some((16_700, &[15])),
        resources: apiextensions::RESOURCES,
    },
    GroupRow {
        name: "scheduling.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha3"],
        priorities: Some((16_600, &[15, 9, 3])),
        resources: scheduling::RESOURCES,
    },
    GroupRow {
        name: "coordination.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha2"],
        priorities: Some((16_500, &[15, 13, 12])),
        resources: coordination::RESOURCES,
    },
    GroupRow {
        name: "node.k8s.io",
        versions: &["v1"],
        priorities: Some((16_300, &[15])),
        resources: node::RESOURCES,
    },
    GroupRow {
        name: "discovery.k8s.io",
        versions: &["v1"],
        priorities: Some((16_200, &[15])),
        resources: discovery::RESOURCES,
    },
    GroupRow {
        name: "resource.k8s.io",
        versions: &["v1", "v1beta2", "v1beta1", "v1alpha3"],
        priorities: Some((16_200, &[21, 15, 9, 1])),
        resources: resource::RESOURCES,
    },
    GroupRow {
        name: "flowcontrol.apiserver.k8s.io",
        versions: &["v1"],
        priorities: Some((16_100, &[21])),
        resources: flowcontrol::RESOURCES,
    },
    GroupRow {
        name: "internal.apiserver.k8s.io",
        versions: &["v1alpha1"],
        priorities: Some((16_000, &[9])),
        resources: apiserverinternal::RESOURCES,
    },
    GroupRow {
        name: "storagemigration.k8s.io",
        versions: &["v1", "v1beta1"],
        priorities: Some((15_800, &[15, 9])),
        resources: storagemigration::RESOURCES,
    },
    GroupRow {
        name: "lifecycle.k8s.io",
        versions: &["v1alpha1"],
        priorities: Some((15_700, &[1])),
        resources: lifecycle::RESOURCES,
    },
];

/// Kinds that only subresources accept. They are not resources and therefore have no row.
pub static SUBRESOURCE_KINDS: &[(&str, &str, KindBehavior)] = &[
    (
        "authentication.k8s.io",
        "TokenRequest",
        KindBehavior {
            defaults: Some(defaults::cluster::token_request),
            rules: Some(validation::reviews::TOKEN_REQUEST),
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        },
    ),
    (
        "autoscaling",
        "Scale",
        KindBehavior {
            defaults: None,
            rules: None,
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: Some(print::autoscaling::SCALE),
        },
    ),
    (
        "policy",
        "Eviction",
        KindBehavior {
            defaults: None,
            rules: Some(validation::policy::EVICTION),
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        },
    ),
];

/// Iterates over every row, in the order of [`GROUPS`].
pub fn all() -> impl Iterator<Item = &'static Resource> {
    GROUPS.iter().flat_map(|group| group.resources)
}

pub fn group(name: &str) -> Option<&'static GroupRow> {
    GROUPS.iter().find(|group| group.name == name)
}

/// Finds the row of a resource by plural name if it has the version, served or not (see [`Served`]).
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    self::group(group)?.resources.iter().find(|row| row.plural == plural && row.version(version).is_some())
}

/// Finds the row of a kind if it has the version, served or not.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    self::group(group)?.resources.iter().find(|row| row.kind == kind && row.version(version).is_some())
}
