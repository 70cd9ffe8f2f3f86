//! Layout of storage keys.
//!
//! An object is stored at `/registry/<directory>/[<namespace>/]<name>`, as in Kubernetes. The directory of a built-in resource is in
//! its row of the resource table ([`Resource::directory`]); that of a custom resource is `<group>/<plural>`. The directories of no two
//! resources overlap, except for the two groups of events, which share their objects. The resource of an object follows from its
//! directory alone, never from its content.

mod migration;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kinds::table::{self, Resource};

pub use migration::migrate;

/// The common prefix of all keys.
pub const ROOT: &str = "/registry/";

/// The beginning of the keys of the Leases with which API servers show that they run.
pub const IDENTITY_LEASES: &str = "/registry/leases/kube-system/apiserver-";

/// The prefix of the keys of allocated ranges.
pub const RANGES: &str = "/registry/ranges/";

/// The allocated node ports. Like some other keys that servers own, it is not an object of the API: see [`is_object`].
pub const NODE_PORTS: &str = "/registry/ranges/servicenodeports";

/// Keys in etcd have this prefix unless `--etcd-prefix` names another one; above the backend they begin with [`ROOT`].
pub const DEFAULT_ETCD_PREFIX: &str = "/registry";

/// The prefix of the keys with which servers show that they run: `/registry/masterleases/<ip>`. They are not objects of the API.
pub const MASTER_LEASES: &str = "/registry/masterleases/";

/// Like [`MASTER_LEASES`], for requests that kube-apiservers forward to each other.
pub const PEER_LEASES: &str = "/registry/peerserverleases/";

/// The prefix of the keys that fence the charged writes of a namespace: `/registry/portcullis-quota-fences/<namespace>`. kube-apiserver has
/// no such keys and ignores them.
pub const QUOTA_FENCES: &str = "/registry/portcullis-quota-fences/";

/// Key prefixes of the resources that the server itself reads, each with its group and plural name.
macro_rules! prefixes {
    ($($name:ident = $group:literal $plural:literal at $directory:literal;)*) => {
        $(pub const $name: &str = concat!("/registry/", $directory, "/");)*
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
    LEASES = "coordination.k8s.io" "leases" at "leases";
    ENDPOINT_SLICES = "discovery.k8s.io" "endpointslices" at "endpointslices";
    IP_ADDRESSES = "networking.k8s.io" "ipaddresses" at "ipaddresses";
    SERVICE_CIDRS = "networking.k8s.io" "servicecidrs" at "servicecidrs";
    FLOW_SCHEMAS = "flowcontrol.apiserver.k8s.io" "flowschemas" at "flowschemas";
    PRIORITY_LEVELS = "flowcontrol.apiserver.k8s.io" "prioritylevelconfigurations" at "prioritylevelconfigurations";
    CLUSTER_ROLES = "rbac.authorization.k8s.io" "clusterroles" at "clusterroles";
    CLUSTER_ROLE_BINDINGS = "rbac.authorization.k8s.io" "clusterrolebindings" at "clusterrolebindings";
    ROLES = "rbac.authorization.k8s.io" "roles" at "roles";
    ROLE_BINDINGS = "rbac.authorization.k8s.io" "rolebindings" at "rolebindings";
    RESOURCE_SLICES = "resource.k8s.io" "resourceslices" at "resourceslices";
    VOLUME_ATTACHMENTS = "storage.k8s.io" "volumeattachments" at "volumeattachments";
}

/// The key prefix of a built-in resource; `None` if its objects are not stored.
pub fn prefix(row: &Resource) -> Option<String> {
    row.directory().map(|directory| format!("{ROOT}{directory}/"))
}

pub fn custom_prefix(group: &str, plural: &str) -> String {
    format!("{ROOT}{}/", table::custom_directory(group, plural))
}

/// The key prefix of the built-in resource with this group and plural name; `None` if there is none or it is not stored.
pub fn built_in(group: &str, plural: &str) -> Option<&'static str> {
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

pub fn cluster_scoped(prefix: &str, name: &str) -> String {
    format!("{prefix}{name}")
}

pub fn namespaced(prefix: &str, namespace: &str, name: &str) -> String {
    format!("{prefix}{namespace}/{name}")
}

/// The key prefix of a namespace; `prefix` itself (all namespaces) if `namespace` is empty.
pub fn in_namespace(prefix: &str, namespace: &str) -> String {
    if namespace.is_empty() { prefix.to_owned() } else { format!("{prefix}{namespace}/") }
}

/// The name of the object that is stored at a key.
pub fn name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// The namespace of the object that is stored at a key; empty if it is cluster-scoped, and for a key that [`is_object`] rejects.
pub fn namespace(key: &str) -> &str {
    let below = prefix_end(key).and_then(|end| key.get(end..)).unwrap_or_default();
    below.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// The end of a key's resource prefix (`/registry/<directory>/`); `None` if the key is too short to have one. A directory is one
/// segment if that segment is the directory of a built-in resource, and two segments otherwise.
pub fn prefix_end(key: &str) -> Option<usize> {
    /// Sorted by length, then by name, for binary search.
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

/// Returns true if the key is in the directory of a resource. Other keys hold state of servers: allocated node ports, leases of endpoints.
pub fn is_object(key: &str) -> bool {
    prefix_end(key).is_some()
}

/// A key of the servers' own data, such as allocated node ports and leases of endpoints, which no admission guards. Only this module makes
/// one, and never of an object of the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerKey(Arc<str>);

impl ServerKey {
    /// `None` for the key of an object, and for a key that is not below [`ROOT`].
    fn new(key: &str) -> Option<Self> {
        (key.starts_with(ROOT) && !is_object(key)).then(|| ServerKey(key.into()))
    }

    /// The key of [`NODE_PORTS`].
    pub fn node_ports() -> Self {
        ServerKey(NODE_PORTS.into())
    }

    /// The key below [`MASTER_LEASES`] of the server with this address; `None` if it is not one.
    pub fn master_lease(ip: &str) -> Option<Self> {
        ServerKey::new(&format!("{MASTER_LEASES}{ip}"))
    }

    /// The key below [`QUOTA_FENCES`] of a namespace; `None` if this is not the name of one.
    pub fn quota_fence(namespace: &str) -> Option<Self> {
        ServerKey::new(&format!("{QUOTA_FENCES}{namespace}")).filter(|_| !namespace.is_empty())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of an object of a CRD that no request can reach, because built-in resources have the paths of all its versions. Only this module
/// makes one, and never of a built-in object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableKey(Arc<str>);

impl UnreachableKey {
    /// `None` unless the key is in the directory of this custom resource and that overlaps with no built-in one.
    pub fn new(group: &str, plural: &str, key: &Arc<str>) -> Option<Self> {
        let is_own =
            key.starts_with(&custom_prefix(group, plural)) && table::overlapping(group, plural).is_none();
        is_own.then(|| UnreachableKey(Arc::clone(key)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A key without `/registry`, as Kubernetes shows some keys: `/pods/default/a`.
pub fn below_root(key: &str) -> &str {
    key.strip_prefix(ROOT.trim_end_matches('/')).unwrap_or(key)
}

/// The group and plural name in the key prefix of a custom resource.
pub fn custom_resource(prefix: &str) -> Option<(&str, &str)> {
    prefix.strip_prefix(ROOT)?.strip_suffix('/')?.split_once('/')
}
