//! The resource table: every kind that Kubernetes 1.37 serves, also in the beta and alpha versions that can be enabled.
//!
//! [`GROUPS`] is the whole table, in the order in which discovery lists the groups. Each group has a file with one row
//! per kind. A row names everything about its kind: defaults, validation, strategy, warnings and columns
//! ([`KindBehavior`]), conversions between versions ([`VersionRow::converted`]) and the storage directory. A row that
//! omits one of them does not compile. Kinds are not registered anywhere else.

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
    /// Rows sorted by plural name.
    pub resources: &'static [Resource],
}

/// All groups, in discovery order.
pub static GROUPS: &[GroupRow] = &[
    GroupRow { name: "", versions: &["v1"], resources: core::RESOURCES },
    GroupRow { name: "apiregistration.k8s.io", versions: &["v1"], resources: apiregistration::RESOURCES },
    GroupRow { name: "apps", versions: &["v1"], resources: apps::RESOURCES },
    GroupRow { name: "events.k8s.io", versions: &["v1"], resources: events::RESOURCES },
    GroupRow { name: "authentication.k8s.io", versions: &["v1"], resources: authentication::RESOURCES },
    GroupRow { name: "authorization.k8s.io", versions: &["v1"], resources: authorization::RESOURCES },
    GroupRow { name: "autoscaling", versions: &["v2", "v1"], resources: autoscaling::RESOURCES },
    GroupRow { name: "batch", versions: &["v1"], resources: batch::RESOURCES },
    GroupRow {
        name: "certificates.k8s.io",
        versions: &["v1", "v1beta1"],
        resources: certificates::RESOURCES,
    },
    GroupRow { name: "networking.k8s.io", versions: &["v1"], resources: networking::RESOURCES },
    GroupRow { name: "policy", versions: &["v1"], resources: policy::RESOURCES },
    GroupRow { name: "rbac.authorization.k8s.io", versions: &["v1"], resources: rbac::RESOURCES },
    GroupRow { name: "storage.k8s.io", versions: &["v1"], resources: storage::RESOURCES },
    GroupRow {
        name: "admissionregistration.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha1"],
        resources: admissionregistration::RESOURCES,
    },
    GroupRow { name: "apiextensions.k8s.io", versions: &["v1"], resources: apiextensions::RESOURCES },
    GroupRow { name: "scheduling.k8s.io", versions: &["v1"], resources: scheduling::RESOURCES },
    GroupRow {
        name: "coordination.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha2"],
        resources: coordination::RESOURCES,
    },
    GroupRow { name: "node.k8s.io", versions: &["v1"], resources: node::RESOURCES },
    GroupRow { name: "discovery.k8s.io", versions: &["v1"], resources: discovery::RESOURCES },
    GroupRow {
        name: "resource.k8s.io",
        versions: &["v1", "v1beta2", "v1beta1", "v1alpha3"],
        resources: resource::RESOURCES,
    },
    GroupRow { name: "flowcontrol.apiserver.k8s.io", versions: &["v1"], resources: flowcontrol::RESOURCES },
    GroupRow {
        name: "internal.apiserver.k8s.io",
        versions: &["v1alpha1"],
        resources: apiserverinternal::RESOURCES,
    },
    GroupRow {
        name: "storagemigration.k8s.io",
        versions: &["v1", "v1beta1"],
        resources: storagemigration::RESOURCES,
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
