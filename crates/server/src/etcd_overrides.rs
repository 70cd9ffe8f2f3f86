//! Resources in other etcd clusters (`--etcd-servers-overrides`), by kube-apiserver's rules.

use std::collections::BTreeMap;

use catalog::keys;
use kinds::table::{self, KindStorage, Resource};

use crate::config::{EtcdOverride, EtcdStorage};

/// A cluster that holds some resources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EtcdCluster {
    /// URLs of its members.
    pub(crate) servers: Vec<String>,
    /// Key prefixes of its resources.
    pub(crate) prefixes: Vec<String>,
}

/// Keys that are not objects of the API, each after the resource of the core group whose override also moves the keys. As in
/// kube-apiserver, the override of `services` moves the allocated node ports, and overrides of `servicenodeportallocations` and
/// `serviceipallocations` have no effect.
const INTERNAL: [(&str, &str); 3] = [
    ("apiServerIPInfo", keys::MASTER_LEASES),
    ("apiServerPeerIPInfo", keys::PEER_LEASES),
    ("services", keys::RANGES),
];

/// These API groups are served by parts of kube-apiserver that ignore overrides.
const EXTENSION_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// The clusters besides the main one, in the order in which the flag names them. Overrides that have no effect in kube-apiserver, such
/// as those of custom resources, have none here: a warning says so.
pub(crate) fn clusters(config: &EtcdStorage) -> Vec<EtcdCluster> {
    let servers = servers_by_prefix(&config.overrides);
    let mut clusters: Vec<EtcdCluster> = Vec::new();
    let mut sets: Vec<Vec<&String>> = vec![set(&config.servers)];
    for given in &config.overrides {
        // Several overrides may name one cluster, with its members in any order.
        let members = set(&given.servers);
        if !sets.contains(&members) {
            clusters.push(EtcdCluster { servers: given.servers.clone(), prefixes: Vec::new() });
            sets.push(members);
        }
    }
    for (prefix, servers) in servers {
        let members = set(servers);
        if let Some(cluster) = clusters.iter_mut().find(|cluster| set(&cluster.servers) == members) {
            cluster.prefixes.push(prefix);
        }
    }
    clusters
}

fn set(servers: &[String]) -> Vec<&String> {
    let mut servers: Vec<&String> = servers.iter().collect();
    servers.sort_unstable();
    servers.dedup();
    servers
}

/// The servers of each key prefix that is overridden. The last override of a resource counts, and one of a resource counts more than
/// one of its group.
fn servers_by_prefix(overrides: &[EtcdOverride]) -> BTreeMap<String, &[String]> {
    let mut servers: BTreeMap<String, &[String]> = BTreeMap::new();
    for of_groups in [true, false] {
        for given in overrides.iter().filter(|given| (given.resource == "*") == of_groups) {
            let EtcdOverride { group, resource, .. } = given;
            let rows = table::all().filter(|row| is_meant(row, given));
            let internal = INTERNAL.iter().filter(|(name, _)| group.is_empty() && covers(given, name));
            let prefixes: Vec<String> = rows
                .filter_map(keys::prefix)
                .chain(internal.map(|(_, prefix)| (*prefix).to_owned()))
                .collect();
            if prefixes.is_empty() {
                tracing::warn!(
                    flag = "--etcd-servers-overrides",
                    group = %group,
                    resource = %resource,
                    "the override has no effect, as in kube-apiserver: no built-in resource is stored under this name"
                );
            }
            servers.extend(prefixes.into_iter().map(|prefix| (prefix, given.servers.as_slice())));
        }
    }
    servers
}

fn is_meant(row: &Resource, given: &EtcdOverride) -> bool {
    matches!(row.storage, KindStorage::Own(_))
        && row.group == given.group
        && !EXTENSION_GROUPS.contains(&row.group)
        && covers(given, row.plural)
}

fn covers(given: &EtcdOverride, name: &str) -> bool {
    given.resource == "*" || given.resource == name
}

#[cfg(test)]
mod tests;
