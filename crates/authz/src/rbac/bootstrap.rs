//! The roles and bindings every cluster begins with, those of Kubernetes 1.37.
//!
//! Each family is a table of its own; [`objects`] makes the stored objects of them. [`super::reconcile`] says what to do where
//! some exist already.

mod cluster_bindings;
#[rustfmt::skip] // One rule per line, however long, reads better than one word per line.
mod components;
#[rustfmt::skip] // As above.
mod controllers;
#[rustfmt::skip] // As above.
mod namespaced;
#[rustfmt::skip] // As above.
mod people;
mod table;
#[rustfmt::skip] // As above.
mod webhooks;

use value::Value;

/// The annotation that, as `"false"`, keeps a role or binding from being brought up to date.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// All of them, in the order they are to be created: cluster roles, cluster role bindings, roles, role bindings.
pub fn objects() -> Vec<Value> {
    let cluster_roles = || people::ROLES.iter().chain(components::ROLES).chain(controllers::ROLES);
    let mut objects: Vec<Value> = cluster_roles().map(|role| role.object("")).collect();
    objects.extend(cluster_bindings::BINDINGS.iter().map(|bind| bind.object("")));
    objects.extend(cluster_roles().filter_map(table::Role::own_binding));
    objects.extend(namespaced::ROLES.iter().map(|(namespace, role)| role.object(namespace)));
    objects.extend(namespaced::BINDINGS.iter().map(|(namespace, bind)| bind.object(namespace)));
    objects
}

/// What the account has that the server asks for tokens for webhooks in the name of: it may have every API group attested, by
/// either name. Not in [`objects`], because it is there only where such tokens are.
pub fn webhook_tokens() -> Vec<Value> {
    vec![webhooks::ROLE.object(""), webhooks::BINDING.object("")]
}

/// The rules of `system:node`, which the Node authorizer applies to whatever it does not divide among nodes.
pub fn node_rules() -> Vec<super::Rule> {
    components::ROLES.iter().filter(|role| role.is("system:node")).flat_map(table::Role::rules).collect()
}

#[cfg(test)]
mod tests;
