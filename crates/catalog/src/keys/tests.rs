use std::collections::BTreeMap;

use api::features::Features;
use kinds::table::{self, GROUPS, KindStorage, RuntimeConfig};

use super::{
    CRDS, NAMED, NODE_PORTS, NODES, ROOT, SERVICES, ServerKey, UnreachableKey, built_in, cluster_scoped,
    custom_prefix, custom_resource, name, namespace, namespaced, prefix, prefix_end,
};
use crate::Catalog;

#[test]
fn resources_with_special_prefixes_are_stored_under_them() {
    for (group, plural, named) in NAMED {
        assert_eq!(built_in(group, plural), Some(*named), "{group} {plural}");
    }
}

#[test]
fn name_and_namespace_of_an_object_follow_from_its_key() {
    let widgets = custom_prefix("example.com", "widgets");
    for prefix in [SERVICES, CRDS, NODES, &widgets] {
        let key = namespaced(prefix, "prod", "web");
        assert_eq!((namespace(&key), name(&key)), ("prod", "web"), "{key}");
        let key = cluster_scoped(prefix, "web.example.com");
        assert_eq!((namespace(&key), name(&key)), ("", "web.example.com"), "{key}");
    }
    assert_eq!(
        (namespace("/registry/a"), name("/registry/a")),
        ("", "a"),
        "the key is too short for an object"
    );
}

/// Covers all built-in resources in all versions, and custom resources with every combination of known group and plural names.
#[test]
fn no_two_resources_have_overlapping_prefixes() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for row in table::all() {
        for _version in row.versions {
            let Some(prefix) = prefix(row) else { continue };
            // Both groups of events share their objects.
            let (group, ()) = match row.storage {
                KindStorage::With(group, _) => {
                    assert_eq!((row.group, row.plural, group), ("events.k8s.io", "events", ""));
                    (group, ())
                }
                _ => (row.group, ()),
            };
            let owner = format!("built-in {}.{group}", row.plural);
            let other = owners.insert(prefix, owner.clone());
            assert!(other.as_ref().is_none_or(|other| *other == owner), "{owner} and {other:?}");
        }
    }
    let plurals: Vec<&str> =
        table::all().map(|row| row.plural).chain(["specs", "endpoints", "things"]).collect();
    let own = ["example.com", "pods.example.com", "services.specs", "k8s.io"];
    let mut refused = Vec::new();
    // CRD validation rejects a group without a dot; `table::overlapping` covers those.
    for group in GROUPS.iter().map(|group| group.name).chain(own).chain(plurals.iter().copied()) {
        for plural in &plurals {
            if table::overlapping(group, plural).is_some() {
                refused.push((group, *plural));
            } else if !group.is_empty() {
                owners.insert(custom_prefix(group, plural), format!("custom {plural}.{group}"));
            }
        }
    }
    // In sorted order, a prefix directly precedes the keys it contains.
    let all: Vec<_> = owners.iter().collect();
    assert!(all.len() > 1000, "{}", all.len());
    for pair in all.windows(2) {
        assert!(!pair[1].0.starts_with(pair[0].0.as_str()), "{pair:?}");
    }
    refused.retain(|(group, _)| group.contains('.'));
    assert_eq!(
        refused,
        [("apiregistration.k8s.io", "apiservices"), ("apiextensions.k8s.io", "customresourcedefinitions")]
    );
    // The resource of a key is that of its prefix.
    for prefix in owners.keys() {
        for rest in ["a", "a/b", "pods/x"] {
            let key = format!("{prefix}{rest}");
            assert_eq!(prefix_end(&key).and_then(|end| key.get(..end)), Some(prefix.as_str()), "{key}");
        }
        assert_eq!(prefix_end(prefix), Some(prefix.len()));
    }
}

#[test]
fn paths_above_the_resource_directories_have_no_prefix() {
    for above in
        ["/", ROOT, "/registry/services/", "/registry/example.com/", "/other/pods/a", "/registry/pods"]
    {
        assert_eq!(prefix_end(above), None, "{above}");
    }
    assert_eq!(prefix_end("/registry/services/specs/default/kubernetes"), Some(SERVICES.len()));
    assert_eq!(custom_resource("/registry/example.com/things/"), Some(("example.com", "things")));
    assert_eq!(custom_resource(CRDS), Some(("apiextensions.k8s.io", "customresourcedefinitions")));
}

#[test]
fn every_served_kind_has_a_prefix_of_its_own_or_shares_it_with_its_other_versions() {
    let catalog = Catalog::new(RuntimeConfig::parse("api/all=true").unwrap().served(Features::ALL));
    for kind in catalog.stored_in_preferred_version() {
        for other in catalog.equivalents(&kind) {
            assert_eq!(other.scope(""), kind.scope(""));
        }
        assert!(kind.scope("").starts_with(ROOT));
    }
}

#[test]
fn the_key_of_an_object_is_not_a_key_of_server_data() {
    let objects = ["/registry/pods/default/web", "/registry/minions/a", "/registry/example.com/things/a"];
    for key in objects.into_iter().chain(["/pods/default/web", "ranges/servicenodeports", "/registry/pods/"])
    {
        assert_eq!(ServerKey::new(key), None, "{key}");
    }
    // An address must not lead into the directory of a custom resource.
    assert_eq!(ServerKey::master_lease("things/a"), None);
    assert_eq!(ServerKey::quota_fence("things/a"), None);
    assert_eq!(ServerKey::quota_fence(""), None);
}

#[test]
fn data_of_servers_has_keys() {
    assert_eq!(ServerKey::new(NODE_PORTS), Some(ServerKey::node_ports()));
    for (ip, key) in [
        ("192.0.2.1", "/registry/masterleases/192.0.2.1"),
        ("2001:db8::1", "/registry/masterleases/2001:db8::1"),
    ] {
        assert_eq!(ServerKey::master_lease(ip).as_ref().map(ServerKey::as_str), Some(key));
    }
    let fence = ServerKey::quota_fence("default");
    assert_eq!(fence.as_ref().map(ServerKey::as_str), Some("/registry/portcullis-quota-fences/default"));
}

#[test]
fn only_objects_of_a_custom_resource_apart_from_built_in_directories_are_unreachable() {
    let new = |group, plural, key: &str| UnreachableKey::new(group, plural, &key.into());
    let own = "/registry/rbac.authorization.k8s.io/clusterroles/a";
    let key = new("rbac.authorization.k8s.io", "clusterroles", own);
    assert_eq!(key.as_ref().map(UnreachableKey::as_str), Some(own));
    assert_eq!(new("rbac.authorization.k8s.io", "clusterroles", "/registry/clusterroles/a"), None);
    assert_eq!(new("example.com", "things", own), None);
    let shared = "/registry/apiregistration.k8s.io/apiservices/v1.apps";
    assert_eq!(new("apiregistration.k8s.io", "apiservices", shared), None);
}
