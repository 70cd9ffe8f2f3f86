//! The transactions that a server sends to etcd for requests of clients.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[expect(dead_code, reason = "the tests of the crate `etcd` use more of it")]
#[path = "../../../etcd/tests/backend/faulty_endpoint.rs"]
mod faulty_endpoint;

use std::sync::Arc;
use std::time::Duration;

use api::meta;
use authn::InternalIdentity;
use catalog::etcd_values::StorageMediaType;
use conformance::EtcdProcess;
use etcd::messages::TxnRequest;
use faulty_endpoint::{FaultyEndpoint, TXN};
use grpc::TlsFiles;
use http::Method;
use server::client::LoopbackClient;
use server::config::{EtcdStorage, ProbeTimeouts};
use server::{Ephemeral, StorageBackend};
use value::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

struct RecordedServer {
    _etcd: EtcdProcess,
    endpoint: FaultyEndpoint,
    running: Ephemeral,
    client: LoopbackClient,
}

impl RecordedServer {
    /// A server on etcd, through an endpoint that records the transactions; `None` if there is no etcd.
    async fn start() -> Option<RecordedServer> {
        let etcd = EtcdProcess::start().await.unwrap()?;
        let endpoint = FaultyEndpoint::to(&etcd.url).await;
        let storage = EtcdStorage {
            servers: vec![endpoint.url.clone()],
            prefix: "/registry".to_owned(),
            tls: TlsFiles::default(),
            compaction_interval: Duration::ZERO,
            lease_reuse: Duration::from_mins(1),
            media_type: StorageMediaType::default(),
            probe_timeouts: ProbeTimeouts::default(),
            overrides: Vec::new(),
        };
        let started = Ephemeral::start_with(move |config| {
            config.storage.data = StorageBackend::Etcd(Box::new(storage));
        });
        let running = started.await.unwrap();
        let client = LoopbackClient::new(Arc::clone(running.running.state()), InternalIdentity::ApiServer);
        Some(RecordedServer { _etcd: etcd, endpoint, running, client })
    }

    /// The number of transactions about a key so far.
    fn sent(&self, key: &str) -> usize {
        let transactions = self.endpoint.calls::<TxnRequest>(TXN);
        transactions.iter().filter(|transaction| transaction.compare[0].key == key).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_changes_nothing_sends_no_transaction() {
    let Some(server) = RecordedServer::start().await else { return };
    let (client, path) = (&server.client, format!("{MAPS}/a"));
    let created = client.create(MAPS, &parse(r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#)).await.unwrap();
    let sent = || server.sent("/registry/configmaps/default/a");
    assert_eq!(sent(), 1);
    let unchanged = async |answer: Value| {
        assert_eq!(meta::resource_version(&answer), meta::resource_version(&created));
        assert_eq!(sent(), 1, "a transaction was sent");
    };
    unchanged(client.update(&path, &created).await.unwrap()).await;
    let mut unconditional = created.clone();
    unconditional.remove_at(&["metadata", "resourceVersion"]);
    unchanged(client.update(&path, &unconditional).await.unwrap()).await;
    unchanged(client.merge_patch(&path, &parse(r#"{"data":{"k":"v"}}"#)).await.unwrap()).await;
    let json_patch = parse(r#"[{"op":"replace","path":"/data/k","value":"v"}]"#);
    let patched =
        client.request(Method::PATCH, &path, "application/json-patch+json", Some(&json_patch)).await;
    unchanged(patched.unwrap()).await;
    // A change is sent once.
    client.merge_patch(&path, &parse(r#"{"data":{"k":"w"}}"#)).await.unwrap();
    assert_eq!(sent(), 2);
    // Apply: the first one records the field manager.
    let config = parse(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"w"}}"#);
    let apply = async || {
        let path = format!("{path}?fieldManager=test");
        client.request(Method::PATCH, &path, "application/apply-patch+yaml", Some(&config)).await.unwrap()
    };
    let applied = apply().await;
    assert_eq!(sent(), 3);
    assert_eq!(meta::resource_version(&apply().await), meta::resource_version(&applied));
    assert_eq!(sent(), 3, "a second apply was sent");
    client.delete(&path, &parse("{}")).await.unwrap();
    assert_eq!(sent(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_update_of_a_claim_stores_its_default_phase() {
    let Some(server) = RecordedServer::start().await else { return };
    let claim = parse(
        r#"{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#,
    );
    let created = server.client.create(CLAIMS, &claim).await.unwrap();
    assert_eq!(created.str_at(&["status", "phase"]), Some("Pending"));
    let path = format!("{CLAIMS}/c");
    let key = "/registry/persistentvolumeclaims/default/c";
    assert_eq!(server.sent(key), 1);
    let updated = server.client.update(&path, &created).await.unwrap();
    assert_eq!((server.sent(key), updated.str_at(&["status", "phase"])), (2, Some("Pending")));
    let again = server.client.update(&path, &updated).await.unwrap();
    assert_eq!((server.sent(key), meta::resource_version(&again)), (2, meta::resource_version(&updated)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_the_calls_of_etcd_by_resource() {
    let Some(server) = RecordedServer::start().await else { return };
    let (client, path) = (&server.client, format!("{MAPS}/a"));
    let created = client.create(MAPS, &parse(r#"{"metadata":{"name":"a"}}"#)).await.unwrap();
    client.merge_patch(&path, &parse(r#"{"data":{"k":"v"}}"#)).await.unwrap();
    // It is refused by etcd, or before that.
    let conflict = client.update(&path, &created).await.unwrap_err();
    assert_eq!(conflict.code(), 409);
    client.get(&path).await.unwrap();
    client.delete(&path, &parse("{}")).await.unwrap();
    let page = server.running.running.state().metrics.registry().gather();
    let text = prometheus::TextEncoder::new().encode_to_string(&page).unwrap();
    let value = |series: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is missing in:\n{text}")).parse().unwrap()
    };
    let of_maps = |metric: &str, operation: &str| {
        value(&format!(r#"{metric}{{group="",operation="{operation}",resource="configmaps"}}"#))
    };
    for operation in ["create", "update", "delete"] {
        assert!(of_maps("etcd_requests_total", operation) >= 1.0);
        assert!(of_maps("etcd_request_duration_seconds_count", operation) >= 1.0);
    }
    let events = value(r#"apiserver_storage_events_received_total{group="",resource="configmaps"}"#);
    assert!(events >= 3.0, "{events}");
    let current = r#"{group="",operation="getCurrentResourceVersion",resource=""}"#;
    assert!(value(&format!("etcd_requests_total{current}")) >= 1.0);
    assert!(value(r#"etcd_requests_total{group="",operation="list",resource=""}"#) >= 1.0);
    assert!(!text.contains("etcd_request_errors_total{"), "no call has failed");
}
