//! The keys of objects in etcd, written out here so that the checker depends on no code of the server.

/// The keys that the servers write while they run.
pub const MASTER_LEASES: &str = "/registry/masterleases/";
pub(crate) const PODS: &str = "/registry/pods/";
pub(crate) const SERVICES: &str = "/registry/services/specs/";
pub(crate) const CONFIG_MAPS: &str = "/registry/configmaps/";

/// The first part of the keys of a resource of the core group in a namespace.
pub(crate) fn prefix(resource: &str, namespace: &str) -> String {
    let directory = if resource == "services" { "services/specs" } else { resource };
    format!("/registry/{directory}/{namespace}/")
}

/// The key of an object of the core group.
pub(crate) fn of(resource: &str, namespace: &str, name: &str) -> String {
    format!("{}{name}", prefix(resource, namespace))
}
