use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use storage::shared_memory::SharedMemory;
use value::{Value, json};

use super::LEASE;
use crate::client::LoopbackClient;
use crate::identity_lease::LEASES;
use crate::{Ephemeral, StorageBackend};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn client(server: &Ephemeral) -> LoopbackClient {
    LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer)
}

/// Polls the object at `path` until `is_wanted` accepts it.
async fn until(client: &LoopbackClient, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let object = client.get(path).await.unwrap_or_default();
        if is_wanted(&object) {
            return object;
        }
        assert!(Instant::now() < deadline, "{path} stays as it is: {object:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn holder(lease: &Value) -> &str {
    lease.str_at(&["spec", "holderIdentity"]).unwrap_or_default()
}

fn leads(server: &Ephemeral) -> bool {
    let families = server.running.state().metrics.registry().gather();
    let page = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
    page.contains(&format!("leader_election_master_status{{name=\"{LEASE}\"}} 1"))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_of_a_store_runs_the_controllers_and_the_next_takes_over() {
    let shared = SharedMemory::new();
    let start = || {
        Ephemeral::start_with(|config| {
            config.storage.data = StorageBackend::Backend(Arc::new(shared.backend()));
        })
    };
    let (first, second) = (start().await.unwrap(), start().await.unwrap());
    let path = format!("{LEASES}/{LEASE}");
    let lease = until(&client(&first), &path, |lease| !holder(lease).is_empty()).await;
    let leader = holder(&lease).to_owned();
    until(&client(&first), "/api/v1/namespaces/default/serviceaccounts/default", |object| !object.is_null())
        .await;
    let deadline = Instant::now() + PATIENCE;
    while !leads(&first) && !leads(&second) {
        assert!(Instant::now() < deadline, "no server shows that it leads");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(leads(&first) != leads(&second), "one of them leads");
    let (old, new) = if leads(&first) { (first, second) } else { (second, first) };
    old.running.stop().await;
    let left = client(&new);
    until(&left, &path, |lease| !holder(lease).is_empty() && holder(lease) != leader).await;
    let events = "/api/v1/namespaces/kube-system/events?fieldSelector=reason=LeaderElection";
    until(&left, events, |events| events.list_at(&["items"]).len() >= 3).await;
    let namespace = json::parse(br#"{"metadata":{"name":"later"}}"#).unwrap();
    left.create("/api/v1/namespaces", &namespace).await.unwrap();
    until(&left, "/api/v1/namespaces/later/serviceaccounts/default", |object| !object.is_null()).await;
    new.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_store_of_its_own_writes_no_lease_for_its_controllers() {
    let server = Ephemeral::start().await.unwrap();
    let client = client(&server);
    until(&client, "/api/v1/namespaces/default/serviceaccounts/default", |object| !object.is_null()).await;
    assert_eq!(client.get(&format!("{LEASES}/{LEASE}")).await.unwrap_err().code(), 404);
    server.running.stop().await;
}
