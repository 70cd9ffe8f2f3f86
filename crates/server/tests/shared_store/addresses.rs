//! Cluster IPs and node ports with two servers.

use std::collections::BTreeSet;

use storage::shared_memory::SharedFailure;

use crate::servers::{MAPS, PATIENCE, Servers, code, parse};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_a_write_that_may_be_stored_stay_allocated() {
    let servers = Servers::start().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"10.0.0.77","ports":[{{"port":80}}]}}}}"#
        ))
    };
    let key = "/registry/services/specs/default/a";
    servers.service.fail_next_commit(key, SharedFailure::NotStored);
    let refused = servers.one.create(services, &service("a")).await.unwrap_err();
    assert_eq!(refused.code(), 500);
    servers.service.fail_next_commit(key, SharedFailure::StoredUnknown);
    let unknown = servers.one.create(services, &service("a")).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (500, "etcdserver: request timed out"));
    assert_eq!(code(servers.one.get(&format!("{services}/a")).await), 200, "it is stored");
    let taken = servers.one.create(services, &service("b")).await.unwrap_err();
    assert!(taken.message().contains("provided IP is already allocated"), "{taken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_port_is_refused_in_time_while_the_watch_is_stuck() {
    let servers = Servers::start().await;
    let services = "/api/v1/namespaces/default/services";
    let spec = r#""spec":{"type":"NodePort","ports":[{"port":80,"nodePort":31000}]}"#;
    let taken = format!(r#"{{"metadata":{{"name":"a"}},{spec}}}"#);
    servers.create_known(services, &taken).await;
    for name in ["b", "c"] {
        let service = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#);
        servers.create_known(services, &service).await;
    }
    // The second server knows that the port is allocated, and cannot find out whether it still is.
    servers.stream.pause();
    servers.one.create(MAPS, &parse(r#"{"metadata":{"name":"later"}}"#)).await.unwrap();
    let patch = |name: &str| {
        let (client, path) = (servers.two.clone(), format!("{services}/{name}"));
        let patch = parse(&format!("{{{spec}}}"));
        async move { tokio::time::timeout(PATIENCE, client.merge_patch(&path, &patch)).await }
    };
    let answers = ["b", "c"].map(|name| tokio::spawn(patch(name)));
    for answer in answers {
        let refused = answer.await.unwrap().expect("the request is stuck").unwrap_err();
        assert_eq!(refused.code(), 503, "{refused}");
    }
    servers.stream.resume();
    let refused = patch("b").await.unwrap().unwrap_err();
    assert!(refused.message().contains("provided port is already allocated"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_allocate_at_the_same_time_never_give_an_address_or_port_twice() {
    const SERVICES: usize = 80;
    let servers = Servers::start().await;
    let creations: Vec<_> = (0..SERVICES)
        .map(|number| {
            let client = if number % 2 == 0 { servers.one.clone() } else { servers.two.clone() };
            let service = format!(
                r#"{{"metadata":{{"name":"s{number}"}},"spec":{{"type":"NodePort","ports":[{{"name":"a","port":80}},{{"name":"b","port":81}}]}}}}"#
            );
            tokio::spawn(async move {
                client.create("/api/v1/namespaces/default/services", &parse(&service)).await
            })
        })
        .collect();
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for creation in creations {
        let created = creation.await.unwrap().unwrap();
        addresses.insert(created.str_at(&["spec", "clusterIP"]).unwrap().to_owned());
        ports.extend(
            created.list_at(&["spec", "ports"]).iter().map(|port| port.int_at(&["nodePort"]).unwrap()),
        );
    }
    assert_eq!((addresses.len(), ports.len()), (SERVICES, 2 * SERVICES));
}
