use std::time::Duration;

use catalog::etcd_values::StorageMediaType;
use grpc::TlsFiles;

use super::{EtcdCluster, clusters};
use crate::config::{EtcdOverride, EtcdStorage, ProbeTimeouts};

/// The clusters of these overrides, each `GROUP/RESOURCE#URL;URL`, as `URL;URL: PREFIX PREFIX`.
fn resolved(overrides: &[&str]) -> Vec<String> {
    let parse = |text: &&str| {
        let (resource, servers) = text.split_once('#').unwrap();
        let (group, resource) = resource.split_once('/').unwrap();
        EtcdOverride {
            group: group.to_owned(),
            resource: resource.to_owned(),
            servers: servers.split(';').map(str::to_owned).collect(),
        }
    };
    let config = EtcdStorage {
        servers: vec!["m1".to_owned(), "m2".to_owned()],
        prefix: "/registry".to_owned(),
        tls: TlsFiles::default(),
        compaction_interval: Duration::ZERO,
        lease_reuse: Duration::ZERO,
        media_type: StorageMediaType::default(),
        probe_timeouts: ProbeTimeouts::default(),
        overrides: overrides.iter().map(parse).collect(),
    };
    let show =
        |cluster: &EtcdCluster| format!("{}: {}", cluster.servers.join(";"), cluster.prefixes.join(" "));
    clusters(&config).iter().map(show).collect()
}

fn check(overrides: &[&str], expected: &[&str]) {
    assert_eq!(resolved(overrides), expected, "{overrides:?}");
}

#[test]
fn built_in_resources_move_to_their_cluster() {
    check(&["/events#a"], &["a: /registry/events/"]);
    check(&["/nodes#a;b", "apps/deployments#c"], &["a;b: /registry/minions/", "c: /registry/deployments/"]);
}

#[test]
fn overrides_of_the_same_members_share_a_cluster() {
    check(
        &["apps/deployments#a;b", "apps/replicasets#b;a", "/events#c"],
        &["a;b: /registry/deployments/ /registry/replicasets/", "c: /registry/events/"],
    );
}

#[test]
fn the_last_override_of_a_resource_counts_and_one_of_a_group_counts_least() {
    check(&["/events#a", "/events#b"], &["a: ", "b: /registry/events/"]);
    check(&["policy/poddisruptionbudgets#a", "policy/*#b"], &["a: /registry/poddisruptionbudgets/", "b: "]);
    check(&["batch/*#a"], &["a: /registry/cronjobs/ /registry/jobs/"]);
}

#[test]
fn the_members_of_the_main_cluster_are_no_other_cluster() {
    check(&["/events#m2;m1"], &[]);
}

#[test]
fn overrides_that_kube_apiserver_ignores_have_no_effect() {
    for ignored in [
        "example.com/things#a",
        "/nothing#a",
        "/Events#a",
        "events.k8s.io/events#a",
        "apiextensions.k8s.io/customresourcedefinitions#a",
        "apiregistration.k8s.io/*#a",
    ] {
        check(&[ignored], &["a: "]);
    }
}

#[test]
fn data_of_the_servers_moves_under_the_names_of_kube_apiserver() {
    check(&["/apiServerIPInfo#a"], &["a: /registry/masterleases/"]);
    check(&["/apiServerPeerIPInfo#a"], &["a: /registry/peerserverleases/"]);
    // The allocated node ports are where the Services are.
    check(&["/services#a"], &["a: /registry/ranges/ /registry/services/specs/"]);
    for ignored in
        ["/servicenodeportallocations#a", "/serviceipallocations#a", "apps/services#a", "/apiserveripinfo#a"]
    {
        check(&[ignored], &["a: "]);
    }
    let core = resolved(&["/*#a", "/apiServerIPInfo#b"]);
    let [first, second] = core.as_slice() else { panic!("{core:?}") };
    assert!(
        first.contains(" /registry/ranges/ ") && first.contains(" /registry/peerserverleases/ "),
        "{first}"
    );
    assert!(!first.contains("masterleases"), "{first}");
    assert_eq!(second, "b: /registry/masterleases/");
}
