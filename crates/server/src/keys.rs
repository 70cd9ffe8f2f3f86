//! Storage keys: the one place that knows how they are laid out.
//!
//! An object is at `/registry/<directory>/[<namespace>/]<name>`, as in Kubernetes. The directory of a built-in resource is in its
//! row of the table ([`Resource::directory`]); that of a custom resource is `<group>/<plural>`. No two resources have overlapping
//! directories, but for the events of two groups, which are the same objects. What an object is follows from its directory alone,
//! never from what is written in it.

mod migration;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

use kinds::table::{self, Resource};

pub(crate) use migration::migrate;

/// Everything is below this.
pub(crate) const ROOT: &str = "/registry/";

/// The prefixes of keys of resources that the server itself reads, each with the group and plural name it belongs to.
macro_rules! prefixes {
    ($($name:ident = $group:literal $plural:literal at $directory:literal;)*) => {
        $(pub(crate) const $name: &str = concat!("/registry/", $directory, "/");)*
        #[cfg(test)]
        const NAMED: &[(&str, &str, &str)] = &[$(($group, $plural, $name)),*];
    };
}

prefixes! {
    CONFIG_MAPS = "" "configmaps" at "configmaps";
    EVENTS = "" "events" at "events";
    NODES = "" "nodes" at "minions";
    PERSISTENT_VOLUMES = "" "persistentvolumes" at "persistentvolumes";
    PODS = "" "pods" at "pods";
    SECRETS = "" "secrets" at "secrets";
    SERVICES = "" "services" at "services/specs";
    SERVICE_ACCOUNTS = "" "serviceaccounts" at "serviceaccounts";
    VALIDATING_POLICIES = "admissionregistration.k8s.io" "validatingadmissionpolicies" at "validatingadmissionpolicies";
    VALIDATING_BINDINGS = "admissionregistration.k8s.io" "validatingadmissionpolicybindings" at "validatingadmissionpolicybindings";
    VALIDATING_WEBHOOKS = "admissionregistration.k8s.io" "validatingwebhookconfigurations" at "validatingwebhookconfigurations";
    MUTATING_POLICIES = "admissionregistration.k8s.io" "mutatingadmissionpolicies" at "mutatingadmissionpolicies";
    MUTATING_BINDINGS = "admissionregistration.k8s.io" "mutatingadmissionpolicybindings" at "mutatingadmissionpolicybindings";
    MUTATING_WEBHOOKS = "admissionregistration.k8s.io" "mutatingwebhookconfigurations" at "mutatingwebhookconfigurations";
    CRDS = "apiextensions.k8s.io" "customresourcedefinitions" at "apiextensions.k8s.io/customresourcedefinitions";
    API_SERVICES = "apiregistration.k8s.io" "apiservices" at "apiregistration.k8s.io/apiservices";
    POD_CERTIFICATE_REQUESTS = "certificates.k8s.io" "podcertificaterequests" at "podcertificaterequests";
    ENDPOINT_SLICES = "discovery.k8s.io" "endpointslices" at "endpointslices";
    FLOW_SCHEMAS = "flowcontrol.apiserver.k8s.io" "flowschemas" at "flowschemas";
    PRIORITY_LEVELS = "flowcontrol.apiserver.k8s.io" "prioritylevelconfigurations" at "prioritylevelconfigurations";
    CLUSTER_ROLES = "rbac.authorization.k8s.io" "clusterroles" at "clusterroles";
    CLUSTER_ROLE_BINDINGS = "rbac.authorization.k8s.io" "clusterrolebindings" at "clusterrolebindings";
    ROLES = "rbac.authorization.k8s.io" "roles" at "roles";
    ROLE_BINDINGS = "rbac.authorization.k8s.io" "rolebindings" at "rolebindings";
    RESOURCE_SLICES = "resource.k8s.io" "resourceslices" at "resourceslices";
    VOLUME_ATTACHMENTS = "storage.k8s.io" "volumeattachments" at "volumeattachments";
}

/// The prefix of a built-in resource's keys; `None` if nothing is stored.
pub(crate) fn prefix(row: &Resource) -> Option<String> {
    row.directory().map(|directory| format!("{ROOT}{directory}/"))
}

/// The prefix of a custom resource's keys.
pub(crate) fn custom_prefix(group: &str, plural: &str) -> String {
    format!("{ROOT}{}/", table::custom_directory(group, plural))
}

/// The prefix of the keys of the built-in resource with this group and plural name.
pub(crate) fn built_in(group: &str, plural: &str) -> Option<&'static str> {
    /// By group, then by plural name.
    static PREFIXES: LazyLock<HashMap<&str, HashMap<&str, String>>> = LazyLock::new(|| {
        let mut prefixes: HashMap<_, HashMap<_, _>> = HashMap::new();
        for (row, prefix) in table::all().filter_map(|row| Some((row, prefix(row)?))) {
            prefixes.entry(row.group).or_default().insert(row.plural, prefix);
        }
        prefixes
    });
    PREFIXES.get(group)?.get(plural).map(String::as_str)
}

/// The key of an object in a namespace.
pub(crate) fn namespaced(prefix: &str, namespace: &str, name: &str) -> String {
    format!("{prefix}{namespace}/{name}")
}

/// The scope of a namespace; that of all of them if it is empty.
pub(crate) fn in_namespace(prefix: &str, namespace: &str) -> String {
    if namespace.is_empty() { prefix.to_owned() } else { format!("{prefix}{namespace}/") }
}

/// Where the prefix ends that a key has in common with the other objects of its resource; `None` above the directories. A first
/// segment that is the directory of a built-in resource is the whole of it; every other directory has two.
pub(crate) fn prefix_end(key: &str) -> Option<usize> {
    /// By length and then by name, which is quick to search.
    static SINGLE: LazyLock<Vec<(usize, &str)>> = LazyLock::new(|| {
        let directories = table::all().filter_map(Resource::directory);
        let mut single: Vec<_> =
            directories.filter(|directory| !directory.contains('/')).map(|name| (name.len(), name)).collect();
        single.sort_unstable();
        single
    });
    let rest = key.strip_prefix(ROOT)?;
    let (first, below) = rest.split_once('/')?;
    let end = ROOT.len() + first.len() + 1;
    if SINGLE.binary_search(&(first.len(), first)).is_ok() {
        return Some(end);
    }
    below.find('/').map(|slash| end + slash + 1)
}

/// A key without the root, as Kubernetes shows some keys: `/pods/default/a`.
pub(crate) fn below_root(key: &str) -> &str {
    key.strip_prefix(ROOT.trim_end_matches('/')).unwrap_or(key)
}

/// The group and plural name of a custom resource whose prefix this is.
pub(crate) fn custom_resource(prefix: &str) -> Option<(&str, &str)> {
    prefix.strip_prefix(ROOT)?.strip_suffix('/')?.split_once('/')
}
