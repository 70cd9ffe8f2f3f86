//! The resource table: every kind that Kubernetes 1.37 serves at a stable version, and the beta versions that can be enabled.
//!
//! [`GROUPS`] is the whole table, in the order in which discovery lists the groups. Each group has a file with one row
//! per kind. A row names everything about its kind: defaults, validation, strategy, warnings and columns
//! ([`KindBehavior`]), conversions between versions ([`Version::converted`]) and the storage directory. A row that
//! omits one of them does not compile. Kinds are not registered anywhere else.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
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
pub use row::{Conversion, Field, Fields, Resource, Scope, Storage, SubresourceRow, Verb, Version, verbs};
pub use served::Served;

use crate::{defaults, print, validation};

#[derive(Debug)]
pub struct Group {
    /// Empty for the core group.
    pub name: &'static str,
    /// The preferred version comes first.
    pub versions: &'static [&'static str],
    /// Rows sorted by plural name.
    pub resources: &'static [Resource],
}

/// All groups, in discovery order.
pub static GROUPS: &[Group] = &[
    Group { name: "", versions: &["v1"], resources: core::RESOURCES },
    Group { name: "apiregistration.k8s.io", versions: &["v1"], resources: apiregistration::RESOURCES },
    Group { name: "apps", versions: &["v1"], resources: apps::RESOURCES },
    Group { name: "events.k8s.io", versions: &["v1"], resources: events::RESOURCES },
    Group { name: "authentication.k8s.io", versions: &["v1"], resources: authentication::RESOURCES },
    Group { name: "authorization.k8s.io", versions: &["v1"], resources: authorization::RESOURCES },
    Group { name: "autoscaling", versions: &["v2", "v1"], resources: autoscaling::RESOURCES },
    Group { name: "batch", versions: &["v1"], resources: batch::RESOURCES },
    Group { name: "certificates.k8s.io", versions: &["v1"], resources: certificates::RESOURCES },
    Group { name: "networking.k8s.io", versions: &["v1"], resources: networking::RESOURCES },
    Group { name: "policy", versions: &["v1"], resources: policy::RESOURCES },
    Group { name: "rbac.authorization.k8s.io", versions: &["v1"], resources: rbac::RESOURCES },
    Group { name: "storage.k8s.io", versions: &["v1"], resources: storage::RESOURCES },
    Group {
        name: "admissionregistration.k8s.io",
        versions: &["v1", "v1beta1"],
        resources: admissionregistration::RESOURCES,
    },
    Group { name: "apiextensions.k8s.io", versions: &["v1"], resources: apiextensions::RESOURCES },
    Group { name: "scheduling.k8s.io", versions: &["v1"], resources: scheduling::RESOURCES },
    Group { name: "coordination.k8s.io", versions: &["v1"], resources: coordination::RESOURCES },
    Group { name: "node.k8s.io", versions: &["v1"], resources: node::RESOURCES },
    Group { name: "discovery.k8s.io", versions: &["v1"], resources: discovery::RESOURCES },
    Group {
        name: "resource.k8s.io",
        versions: &["v1", "v1beta2", "v1beta1"],
        resources: resource::RESOURCES,
    },
    Group { name: "flowcontrol.apiserver.k8s.io", versions: &["v1"], resources: flowcontrol::RESOURCES },
    Group { name: "storagemigration.k8s.io", versions: &["v1"], resources: storagemigration::RESOURCES },
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

pub fn group(name: &str) -> Option<&'static Group> {
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
