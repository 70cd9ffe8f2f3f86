use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use catalog::encode;
use catalog::keys::{self, ServerKey};
use storage::shared_memory::SharedMemory;
use storage::{Expect, Store, StoreOptions};
use value::{Value, json};

use super::{
    ENDPOINTS, EndpointReconciler, LEASE_TTL, NAME, OwnEndpoint, Ports, SLICES, leases, refresh_lease,
    remove_lease,
};
use crate::Ephemeral;
use crate::StorageBackend;
use crate::client::LoopbackClient;

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn start(data: StorageBackend, ip: [u8; 4], reconciler: EndpointReconciler) -> Ephemeral {
    let started = Ephemeral::start_with(|config| {
        config.storage.data = data;
        config.advertise = Some(IpAddr::from(ip));
        config.endpoint_reconciler = reconciler;
        config.controllers.enabled = false;
    });
    started.await.unwrap()
}

fn client(server: &Ephemeral) -> LoopbackClient {
    LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer)
}

/// The addresses in the Endpoints and in the EndpointSlice.
async fn addresses(client: &LoopbackClient) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let endpoints = client.get(&format!("{ENDPOINTS}/{NAME}")).await.unwrap_or_default();
    let subsets = endpoints.list_at(&["subsets"]).iter();
    let listed =
        subsets.flat_map(|subset| subset.list_at(&["addresses"])).map(|a| text(a.at(&["ip"]).unwrap()));
    let slice = client.get(&format!("{SLICES}/{NAME}")).await.unwrap_or_default();
    let sliced = slice.list_at(&["endpoints"]).iter().flat_map(|e| e.list_at(&["addresses"])).map(text);
    (listed.collect(), sliced.collect())
}

/// Polls until both objects have exactly these addresses.
async fn until(client: &LoopbackClient, wanted: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (listed, sliced) = addresses(client).await;
        if listed == wanted && sliced == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{listed:?} {sliced:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_have_all_servers_of_a_store_until_they_stop() {
    let shared = SharedMemory::new();
    let data = || StorageBackend::Backend(Arc::new(shared.backend()));
    let first = start(data(), [192, 0, 2, 1], EndpointReconciler::Lease).await;
    until(&client(&first), &["192.0.2.1"]).await;
    let second = start(data(), [192, 0, 2, 2], EndpointReconciler::Lease).await;
    until(&client(&second), &["192.0.2.1", "192.0.2.2"]).await;
    first.running.stop().await;
    let left = client(&second);
    until(&left, &["192.0.2.2"]).await;
    let store = second.running.state().storage.store.clone();
    assert_eq!(store.count(keys::MASTER_LEASES), 1);
    // A server that does not refresh its key: the others drop its address at their next round.
    drop(left);
    second.running.stop().await;
    assert_eq!(store.count(keys::MASTER_LEASES), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_of_a_store_has_its_address_without_a_lease() {
    let server = start(StorageBackend::Memory, [192, 0, 2, 1], EndpointReconciler::Lease).await;
    let state = Arc::clone(server.running.state());
    until(&client(&server), &["192.0.2.1"]).await;
    assert_eq!(state.storage.store.count(keys::MASTER_LEASES), 0);
    server.running.stop().await;
    let key = keys::namespaced("/registry/services/endpoints/", "default", NAME);
    let endpoints = encode::tree(&state.storage.store.get(&key).unwrap()).unwrap();
    assert!(endpoints.list_at(&["subsets"]).is_empty(), "{endpoints:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_type_none_writes_no_endpoints_and_leaves_those_of_others_alone() {
    let server = start(StorageBackend::Memory, [192, 0, 2, 1], EndpointReconciler::None).await;
    let client = client(&server);
    let own = OwnEndpoint {
        state: server.running.state(),
        client: client.clone(),
        ip: "192.0.2.7".to_owned(),
        port: 6443,
        reconciler: EndpointReconciler::MasterCount(2),
    };
    assert_eq!(addresses(&client).await, (Vec::new(), Vec::new()));
    own.reconcile().await.unwrap();
    until(&client, &["192.0.2.7"]).await;
    let third = OwnEndpoint { ip: "192.0.2.9".to_owned(), client: client.clone(), ..own };
    third.reconcile().await.unwrap();
    until(&client, &["192.0.2.7", "192.0.2.9"]).await;
    server.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_not_erased_when_no_lease_is_found() {
    let data = StorageBackend::Backend(Arc::new(SharedMemory::new().backend()));
    let server = start(data, [192, 0, 2, 1], EndpointReconciler::Lease).await;
    let client = client(&server);
    until(&client, &["192.0.2.1"]).await;
    let state = server.running.state();
    assert!(remove_lease(&state.storage.store, "192.0.2.1").await.unwrap());
    let own = OwnEndpoint {
        state,
        client: client.clone(),
        ip: "192.0.2.1".to_owned(),
        port: 6443,
        reconciler: EndpointReconciler::Lease,
    };
    let refused = own.write(Ports::Keep, |addresses| !addresses.is_empty()).await.unwrap_err();
    assert!(refused.message().contains("refusing to erase all endpoints"), "{refused}");
    until(&client, &["192.0.2.1"]).await;
    server.running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_server_that_does_not_refresh_it_expires() {
    let store = Store::open(SharedMemory::new().backend(), StoreOptions::default()).await.unwrap();
    refresh_lease(&store, "192.0.2.1").await.unwrap();
    refresh_lease(&store, "192.0.2.2").await.unwrap();
    let both = ["192.0.2.1".to_owned(), "192.0.2.2".to_owned()];
    assert_eq!(leases(&store).await.unwrap(), both.clone().into());
    tokio::time::sleep(Duration::from_secs(10)).await;
    refresh_lease(&store, "192.0.2.1").await.unwrap();
    let entry = store.get("/registry/masterleases/192.0.2.1").unwrap();
    assert_eq!(encode::tree(&entry).unwrap().int_at(&["metadata", "generation"]), Some(2));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let [refreshed, _] = both;
    let left = leases(&store).await.unwrap();
    assert_eq!(left, [refreshed].into(), "the other has not been refreshed for {LEASE_TTL:?}");
    assert!(!remove_lease(&store, "192.0.2.2").await.unwrap(), "it is gone");
}

#[tokio::test]
async fn the_key_of_a_kube_apiserver_is_read_and_a_value_without_an_address_is_skipped() {
    let store = Store::open(SharedMemory::new().backend(), StoreOptions::default()).await.unwrap();
    for (ip, text) in [
        ("10.0.0.9", r#"{"metadata":{"generation":7},"subsets":[{"addresses":[{"ip":"10.0.0.9"}]}]}"#),
        ("10.0.0.8", r#"{"metadata":{"generation":7},"subsets":[]}"#),
    ] {
        let object = json::parse(text.as_bytes()).unwrap();
        let record = encode::record(&encode::head("v1", "Endpoints"), &object, Vec::new());
        let key = ServerKey::master_lease(ip).unwrap();
        crate::write::put_server_data(&store, &key, Expect::Absent, record, Some(LEASE_TTL)).await.unwrap();
    }
    assert_eq!(leases(&store).await.unwrap(), ["10.0.0.9".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_watch_is_stuck_does_not_list_a_server_that_has_left() {
    let shared = SharedMemory::new();
    let store = Store::open(shared.backend(), StoreOptions::default()).await.unwrap();
    let backend = shared.backend();
    let stream = backend.stream();
    let behind = Store::open(backend, StoreOptions::default()).await.unwrap();
    refresh_lease(&store, "192.0.2.1").await.unwrap();
    refresh_lease(&store, "192.0.2.2").await.unwrap();
    assert_eq!(leases(&behind).await.unwrap().len(), 2);
    stream.pause();
    assert!(remove_lease(&store, "192.0.2.1").await.unwrap());
    assert_eq!(leases(&behind).await.unwrap(), ["192.0.2.2".to_owned()].into());
    shared.set_unreachable(true);
    leases(&behind).await.unwrap_err();
}
