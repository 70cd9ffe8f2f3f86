//! The default roles and bindings of Kubernetes 1.37.
//!
//! Each family is a table; [`objects`] builds the objects. [`super::reconcile`] merges them with existing
//! ones.

mod cluster_bindings;
#[rustfmt::skip] // One rule per line, however long, reads better than one word per line.
mod components;
#[rustfmt::skip] // As above.
mod controllers;
#[rustfmt::skip] // As above.
mod features;
#[rustfmt::skip] // As above.
mod namespaced;
#[rustfmt::skip] // As above.
mod people;
mod table;
#[rustfmt::skip] // As above.
mod webhooks;

use api::features::Features;
use value::Value;

/// With the value `"false"`, this annotation excludes a role or binding from reconciliation.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// All default objects with these features, in the order in which they must be created: cluster roles, cluster role bindings, roles,
/// role bindings.
pub fn objects(features: Features) -> Vec<Value> {
    let added =
        || features::ROLES.iter().filter(move |(feature, _)| features.has(*feature)).map(|(_, role)| role);
    let cluster_roles =
        || people::ROLES.iter().chain(components::ROLES).chain(controllers::ROLES).chain(added());
    let with_features = |role: &table::Role| {
        let added = features::RULES.iter().filter(|added| features.has(added.feature) && role.is(added.role));
        role.object_with("", added.flat_map(|added| added.rules))
    };
    let mut objects: Vec<Value> = cluster_roles().map(with_features).collect();
    objects.extend(cluster_bindings::BINDINGS.iter().map(|bind| bind.object("")));
    objects.extend(cluster_roles().filter_map(table::Role::own_binding));
    objects.extend(namespaced::ROLES.iter().map(|(namespace, role)| role.object(namespace)));
    objects.extend(namespaced::BINDINGS.iter().map(|(namespace, bind)| bind.object(namespace)));
    objects
}

/// The role and binding of the service account whose tokens the server sends to webhooks: it may attest every
/// API group, in both dialects. Not part of [`objects`], because they exist only if such tokens are enabled.
pub fn webhook_tokens() -> Vec<Value> {
    vec![webhooks::ROLE.object(""), webhooks::BINDING.object("")]
}

/// The rules of `system:node`, which the Node authorizer applies to resources that it does not restrict per
/// node.
pub fn node_rules() -> Vec<super::PolicyRule> {
    components::ROLES.iter().filter(|role| role.is("system:node")).flat_map(table::Role::rules).collect()
}

#[cfg(test)]
mod tests;
