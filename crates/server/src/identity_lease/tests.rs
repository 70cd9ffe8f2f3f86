use std::sync::Arc;
use std::time::{Duration, Instant};

use api::meta;
use authn::InternalIdentity;
use runtime::identity;
use value::{Value, json};

use super::{LEASES, collect, is_expired};
use crate::Ephemeral;
use crate::client::LoopbackClient;

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_lease_is_expired_when_its_duration_has_passed_or_is_unknown() {
    let lease = |spec: &str| parse(&format!(r#"{{"spec":{spec}}}"#));
    let at_ten = lease(r#"{"renewTime":"1970-01-01T00:00:10.000000Z","leaseDurationSeconds":5}"#);
    assert!(!is_expired(&at_ten, 15_000_000));
    assert!(is_expired(&at_ten, 15_000_001));
    assert!(is_expired(&lease(r#"{"leaseDurationSeconds":5}"#), 0));
    assert!(is_expired(&lease(r#"{"renewTime":"1970-01-01T00:00:10.000000Z"}"#), 0));
}

/// Polls the identity Lease of this host until it exists.
async fn own_lease(client: &LoopbackClient) -> Value {
    let path = format!("{LEASES}/{}", identity::id(&identity::host()));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.get(&path).await {
            Ok(lease) => return lease,
            Err(status) => assert!(status.code() == 404 && Instant::now() < deadline, "{status}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_has_an_identity_lease_until_it_stops() {
    let server = Ephemeral::start().await.unwrap();
    let state = Arc::clone(server.running.state());
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let lease = own_lease(&client).await;
    let id = identity::id(&identity::host());
    let holder = lease.str_at(&["spec", "holderIdentity"]).unwrap();
    assert!(holder.starts_with(&format!("{id}_")), "{holder}");
    assert_eq!(lease.int_at(&["spec", "leaseDurationSeconds"]), Some(3600));
    assert_eq!(
        lease.str_at(&["metadata", "labels", "apiserver.kubernetes.io/identity"]),
        Some("kube-apiserver")
    );
    let host = identity::host();
    assert_eq!(lease.str_at(&["metadata", "labels", "kubernetes.io/hostname"]), Some(host.as_str()));
    let address = server.running.address.to_string();
    let annotation = ["metadata", "annotations", "kubernetes.io/peer-advertise-address"];
    assert_eq!(lease.str_at(&annotation), Some(address.as_str()));
    let key = format!("/registry/leases/kube-system/{id}");
    assert!(state.storage.store.get(&key).is_some());
    server.running.stop().await;
    assert!(state.storage.store.get(&key).is_none(), "the Lease outlives its server");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_collection_deletes_only_expired_leases_of_api_servers() {
    let server = Ephemeral::start().await.unwrap();
    let state = server.running.state();
    let client = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    let label = r#""labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}"#;
    let expired =
        r#""spec":{"holderIdentity":"x","renewTime":"2020-01-01T00:00:00.000000Z","leaseDurationSeconds":1}"#;
    let current =
        r#""spec":{"holderIdentity":"x","renewTime":"2999-01-01T00:00:00.000000Z","leaseDurationSeconds":1}"#;
    for (name, labels, spec) in
        [("expired", label, expired), ("current", label, current), ("unmarked", r#""labels":{}"#, expired)]
    {
        let lease = parse(&format!(r#"{{"metadata":{{"name":"{name}",{labels}}},{spec}}}"#));
        client.create(LEASES, &lease).await.unwrap();
    }
    collect(state, &client).await.unwrap();
    let left = client.get(LEASES).await.unwrap();
    let left: Vec<&str> = left.list_at(&["items"]).iter().map(meta::name).collect();
    assert!(!left.contains(&"expired"), "{left:?}");
    assert!(left.contains(&"current") && left.contains(&"unmarked"), "{left:?}");
    server.running.stop().await;
}
