//! Cluster IPs and node ports with two servers.

use storage::shared_memory::SharedFailure;

use crate::servers::{Servers, code, parse};

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
