//! Tests of allocations in a running server.

mod several;

use std::collections::{BTreeSet, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::admission::expression::{QUICK_COST, YieldPacer};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys;
use heavy_lane::{Effort, LaneAccount};
use storage::{Change, Expect, Store, Write, WritePriority};
use value::{Value, json};

use super::{NodePortRange, ip_address};
use crate::StorageBackend;
use crate::client::LoopbackClient;
use crate::ephemeral::Ephemeral;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    ephemeral: Ephemeral,
    admin: LoopbackClient,
}

impl Server {
    /// A server with these ranges of cluster IPs and 20 node ports.
    async fn start(ranges: &[&str]) -> Self {
        Server::start_on(StorageBackend::Memory, ranges).await
    }

    async fn start_on(data: StorageBackend, ranges: &[&str]) -> Self {
        let ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let start = Ephemeral::start_with(|config| {
            config.storage.data = data;
            config.addresses.cluster_ips = ranges;
            config.addresses.node_ports = NodePortRange::new(30000, 30019).unwrap();
        });
        let ephemeral = start.await.unwrap();
        let admin = LoopbackClient::new(Arc::clone(ephemeral.running.state()), InternalIdentity::ApiServer);
        Server { ephemeral, admin }
    }

    fn store(&self) -> &Store {
        &self.ephemeral.running.state().storage.store
    }

    async fn create(&self, name: &str, spec: &str) -> Result<Value, String> {
        self.post(SERVICES, name, spec).await
    }

    async fn post(&self, path: &str, name: &str, spec: &str) -> Result<Value, String> {
        let object = parse(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#));
        self.admin.create(path, &object).await.map_err(|status| status.message().to_owned())
    }

    async fn patch(&self, name: &str, spec: &str) -> Result<Value, String> {
        let patch = parse(&format!(r#"{{"spec":{spec}}}"#));
        let patched = self.admin.merge_patch(&format!("{SERVICES}/{name}"), &patch).await;
        patched.map_err(|status| status.message().to_owned())
    }

    async fn delete(&self, path: &str) {
        self.admin.delete(path, &parse("{}")).await.unwrap();
    }

    /// The names of all IPAddresses but that of the `kubernetes` Service.
    fn allocated(&self) -> BTreeSet<String> {
        let all = ip_address::managed(self.store()).into_iter().map(|address| address.to_string());
        all.filter(|address| address != "10.0.0.1").collect()
    }

    /// The allocated node ports.
    fn ports(&self) -> Vec<i64> {
        self.ephemeral.running.state().addresses.0.ports.ports_in_memory().unwrap().allocated().collect()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn cluster_ip(service: &Value) -> String {
    service.str_at(&["spec", "clusterIP"]).unwrap().to_owned()
}

const ANY: &str = r#"{"ports":[{"port":80}]}"#;
const NODE_PORT: &str = r#"{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_ip_is_an_ip_address_object_that_refers_to_its_service() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    let address = cluster_ip(&server.create("a", ANY).await.unwrap());
    let object = server.admin.get(&format!("{ADDRESSES}/{address}")).await.unwrap();
    assert_eq!(
        object.at(&["spec", "parentRef"]),
        Some(&parse(r#"{"name":"a","namespace":"default","resource":"services"}"#))
    );
    let labels = r#"{"ipaddress.kubernetes.io/ip-family":"IPv4","ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}"#;
    assert_eq!(object.at(&["metadata", "labels"]), Some(&parse(labels)));
    let again = server.create("a", ANY).await.unwrap_err();
    assert!(again.contains("already exists"), "{again}");
    assert_eq!(server.allocated(), BTreeSet::from([address.clone()]), "the refused one is reverted");
    server.delete(&format!("{SERVICES}/a")).await;
    assert_eq!(server.allocated(), BTreeSet::new());
    let fixed = format!(r#"{{"clusterIP":"{address}","ports":[{{"port":80}}]}}"#);
    assert_eq!(cluster_ip(&server.create("b", &fixed).await.unwrap()), address, "free at once");
    let taken = server.create("c", &fixed).await.unwrap_err();
    assert!(taken.contains("provided IP is already allocated"), "{taken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_get_distinct_addresses_and_ports() {
    let server = Arc::new(Server::start(&["10.0.0.0/26"]).await);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..80 {
        let server = Arc::clone(&server);
        tasks.spawn(async move {
            server.create(&format!("s{i}"), if i % 8 == 0 { NODE_PORT } else { ANY }).await
        });
    }
    let (mut addresses, mut ports, mut refused) = (HashSet::new(), HashSet::new(), 0);
    while let Some(created) = tasks.join_next().await {
        match created.unwrap() {
            Ok(service) => {
                assert!(addresses.insert(cluster_ip(&service)), "{service:?}");
                for port in service.list_at(&["spec", "ports"]) {
                    let node_port = port.int_at(&["nodePort"]);
                    assert!(node_port.is_none_or(|port| ports.insert(port)), "{service:?}");
                }
            }
            Err(why) => {
                assert!(why.contains("range is full"), "{why}");
                refused += 1;
            }
        }
    }
    // 62 addresses, of which the `kubernetes` Service has one.
    assert_eq!((addresses.len(), refused), (61, 19));
    assert_eq!(server.allocated(), addresses.into_iter().collect());
    assert_eq!(server.ports(), ports.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_ports_follow_the_type_of_the_service() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    server.create("a", r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30007}]}"#).await.unwrap();
    assert_eq!(server.ports(), [30007]);
    let taken = server.create("b", r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30007}]}"#).await;
    assert!(
        taken
            .unwrap_err()
            .contains("spec.ports[0].nodePort: Invalid value: 30007: provided port is already allocated")
    );
    let outside = server.create("b", r#"{"type":"NodePort","ports":[{"port":80,"nodePort":7}]}"#).await;
    assert!(outside.unwrap_err().contains("The range of valid ports is 30000-30019"));
    assert_eq!(server.allocated().len(), 1, "the addresses of the refused ones are reverted");
    server.patch("a", r#"{"type":"ClusterIP"}"#).await.unwrap();
    assert_eq!(server.ports(), [] as [i64; 0]);
    server.patch("a", r#"{"type":"LoadBalancer","externalTrafficPolicy":"Local"}"#).await.unwrap();
    assert_eq!(server.ports().len(), 2, "a node port and the port of the health check");
    server
        .patch("a", r#"{"type":"ExternalName","externalName":"e.example","externalTrafficPolicy":null}"#)
        .await
        .unwrap();
    assert_eq!((server.ports().len(), server.allocated().len()), (0, 0));
    server.patch("a", r#"{"type":"ClusterIP","externalName":null}"#).await.unwrap();
    assert_eq!(server.allocated().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_service_cidr_extends_a_full_range_until_it_is_deleted() {
    let server = Server::start(&["10.0.0.0/30"]).await;
    server.create("a", ANY).await.unwrap();
    let full = server.create("b", ANY).await.unwrap_err();
    assert_eq!(
        full,
        r#"Internal error occurred: failed to allocate a serviceIP for Service "b": range is full"#
    );
    server.post(CIDRS, "more", r#"{"cidrs":["10.9.0.0/29"]}"#).await.unwrap();
    let address = cluster_ip(&server.create("b", ANY).await.unwrap());
    assert!(address.starts_with("10.9.0."), "{address}");
    let finalizer = parse(r#"{"metadata":{"finalizers":["example.com/hold"]}}"#);
    server.admin.merge_patch(&format!("{CIDRS}/more"), &finalizer).await.unwrap();
    server.delete(&format!("{CIDRS}/more")).await;
    let full = server.create("c", ANY).await.unwrap_err();
    assert!(full.contains("range is full"), "{full}");
    let fixed = server.create("c", r#"{"clusterIP":"10.9.0.5","ports":[{"port":80}]}"#).await.unwrap_err();
    assert!(fixed.contains("the provided network does not match the current range"), "{fixed}");
    server.delete(&format!("{SERVICES}/b")).await;
    assert_eq!(server.allocated().len(), 1, "addresses are released in any state of the range");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_a_second_address_and_returns_it() {
    let server = Server::start(&["10.0.0.0/24", "fd00::/112"]).await;
    server.create("a", ANY).await.unwrap();
    server.patch("a", r#"{"ipFamilyPolicy":"RequireDualStack"}"#).await.unwrap();
    assert_eq!(server.allocated().len(), 2);
    assert!(server.allocated().iter().any(|address| address.starts_with("fd00::")));
    server.patch("a", r#"{"ipFamilyPolicy":"SingleStack"}"#).await.unwrap();
    assert_eq!(server.allocated().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_check_ranges_and_allocate_nothing() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    let dry = format!("{SERVICES}?dryRun=All");
    let tried = server.post(&dry, "a", NODE_PORT).await.unwrap();
    assert_eq!(cluster_ip(&tried), "10.0.0.0", "an address that no Service gets");
    let ports = tried.list_at(&["spec", "ports"]).iter().map(|port| port.int_at(&["nodePort"]));
    assert_eq!(ports.collect::<Vec<_>>(), [Some(32769), Some(32770)]);
    let kubernetes = r#"{"clusterIP":"10.0.0.1","ports":[{"port":80}]}"#;
    assert!(server.post(&dry, "a", kubernetes).await.is_ok(), "taken, which dry runs do not check");
    let outside = server.post(&dry, "a", r#"{"clusterIP":"10.1.0.77","ports":[{"port":80}]}"#).await;
    let text = "the provided IP (10.1.0.77) is not in the valid range. The range of valid IPs is 10.0.0.0/24";
    assert!(outside.unwrap_err().contains(text));
    assert_eq!((server.allocated().len(), server.ports().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_address_is_reserved_for_the_kubernetes_service() {
    let server = Server::start(&["10.0.0.0/29"]).await;
    let first = r#"{"clusterIP":"10.0.0.1","ports":[{"port":443}]}"#;
    let refused = server.create("thief", first).await.unwrap_err();
    assert!(refused.contains("provided IP is already allocated"), "{refused}");
    for i in 0..5 {
        server.create(&format!("s{i}"), ANY).await.unwrap();
    }
    let full = server.create("s5", ANY).await.unwrap_err();
    assert!(full.contains("range is full"), "{full}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_ip_address_is_created_again_for_its_service() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    let address = cluster_ip(&server.create("a", ANY).await.unwrap());
    server.delete(&format!("{ADDRESSES}/{address}")).await;
    server.until("the IPAddress is not repaired", |server| server.allocated().contains(&address)).await;
}

/// Stores an object without a server's allocations, as an earlier version of the server did.
async fn store_directly(store: &Store, key: &str, head: (&str, &str), object: &str) {
    let record = encode::record(&encode::head(head.0, head.1), &parse(object), Vec::new());
    let change = Change::Put(record);
    let write =
        Write { key: key.into(), expect: Expect::Absent, change, priority: WritePriority::System, ttl: None };
    store.commit(write).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_ports_of_stored_services_are_allocated_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let store = Store::open(storage::Embedded::at(&path), storage::StoreOptions::default()).await.unwrap();
    for i in 2..7 {
        let object = format!(
            r#"{{"metadata":{{"name":"old{i}","namespace":"default","uid":"u{i}","creationTimestamp":"2026-01-01T00:00:00Z"}},
            "spec":{{"type":"NodePort","clusterIP":"10.0.0.{i}","clusterIPs":["10.0.0.{i}"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack",
            "ports":[{{"port":80,"protocol":"TCP","nodePort":3000{i}}}]}}}}"#
        );
        store_directly(&store, &format!("{}default/old{i}", keys::SERVICES), ("v1", "Service"), &object)
            .await;
    }
    store.close().await;
    let ephemeral = Ephemeral::start_with(|config| {
        config.storage.data = StorageBackend::Directory(path);
        config.addresses.cluster_ips = vec!["10.0.0.0/28".parse().unwrap()];
        config.addresses.node_ports = NodePortRange::new(30000, 30007).unwrap();
    });
    let ephemeral = ephemeral.await.unwrap();
    let admin = LoopbackClient::new(Arc::clone(ephemeral.running.state()), InternalIdentity::ApiServer);
    let server = Server { ephemeral, admin };
    let mut seen: HashSet<String> = (2..7).map(|i| format!("10.0.0.{i}")).collect();
    for i in 0..8 {
        let address = cluster_ip(&server.create(&format!("new{i}"), ANY).await.unwrap());
        assert!(seen.insert(address), "an address of a stored Service was allocated again");
    }
    let taken =
        server.create("x", r#"{"type":"NodePort","clusterIP":"10.0.0.3","ports":[{"port":80}]}"#).await;
    assert!(taken.unwrap_err().contains("provided IP is already allocated"));
    assert_eq!(server.ports(), [30002, 30003, 30004, 30005, 30006]);
    server.delete(&format!("{SERVICES}/old3")).await;
    assert_eq!(server.ports(), [30002, 30004, 30005, 30006]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ip_address_that_does_not_refer_to_a_service_is_deleted() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    let object = r#"{"metadata":{"name":"10.0.0.99","labels":{"ipaddress.kubernetes.io/ip-family":"IPv4",
        "ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},
        "spec":{"parentRef":{"group":"example.com","resource":"gateways","namespace":"default","name":"g"}}}"#;
    server.admin.create(ADDRESSES, &parse(object)).await.unwrap();
    server.until("the IPAddress stays", |server| server.allocated().is_empty()).await;
    let events = server.admin.get("/apis/events.k8s.io/v1/namespaces/default/events").await.unwrap();
    let reasons: Vec<_> = events.list_at(&["items"]).iter().map(|event| event.str_at(&["reason"])).collect();
    assert_eq!(reasons, [Some("IPAddressNotAllocated")]);
}

/// A request of alice that is on the heavy lane.
fn large_request() -> Effort {
    let effort = Effort::default();
    effort.set_account(LaneAccount { owner: "alice".into(), class: None });
    effort
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_service_holds_the_node_ports_without_a_turn_in_the_heavy_lane() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    // The ports can be allocated.
    server.create("a", NODE_PORT).await.unwrap();
    let count = |store: &Store| store.snapshot(keys::IP_ADDRESSES).entries.len();
    server.until("the kubernetes Service has an address", |server| count(server.store()) == 2).await;
    let state = Arc::clone(server.ephemeral.running.state());
    let held = state.addresses.0.ports.in_turn().await.unwrap();
    let drive = |effort: Effort, work: Pin<Box<dyn Future<Output = ()> + Send>>| {
        let state = Arc::clone(&state);
        tokio::spawn(async move { state.serving.heavy.drive(&effort, None, work).await })
    };
    let (effort, of_request) = (large_request(), Arc::clone(&state));
    let inner = effort.clone();
    let (waits, waiting) = tokio::sync::oneshot::channel();
    let large = drive(
        effort,
        Box::pin(async move {
            inner.enter_lane(usize::MAX).await;
            let mut service = parse(&format!(
                r#"{{"metadata":{{"name":"b","namespace":"default","uid":"u"}},"spec":{NODE_PORT}}}"#
            ));
            let mut allocating =
                std::pin::pin!(of_request.addresses.allocate(&inner, &mut service, None, false));
            let mut waits = Some(waits);
            let claims = std::future::poll_fn(|context| {
                let polled = allocating.as_mut().poll(context);
                // The address is allocated, so it waits for the ports.
                if count(&of_request.storage.store) == 3
                    && let Some(waits) = waits.take()
                {
                    let _ = waits.send(());
                }
                polled
            });
            claims.await.unwrap().revert().await;
        }),
    );
    waiting.await.unwrap();
    // The other requests of alice have all turns.
    let (end, ended) = tokio::sync::watch::channel(false);
    let mut others = Vec::new();
    for _ in 0..2 {
        let (effort, ended) = (large_request(), ended.clone());
        let (inner, (begun, has_begun)) = (effort.clone(), tokio::sync::oneshot::channel());
        others.push(drive(
            effort,
            Box::pin(async move {
                inner.enter_lane(usize::MAX).await;
                let _ = begun.send(());
                let pace = YieldPacer::default();
                while !*ended.borrow() {
                    pace.add(QUICK_COST);
                    pace.yield_now().await;
                }
            }),
        ));
        has_begun.await.unwrap();
    }
    drop(held);
    let bob = tokio::time::timeout(PATIENCE, state.addresses.0.ports.in_turn()).await;
    drop(bob.expect("a large request holds the ports while it waits for its turn").unwrap());
    end.send_replace(true);
    large.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_an_allocation_take_their_steps_from_the_request() {
    let server = Server::start(&["10.0.0.0/24"]).await;
    let addresses = &server.ephemeral.running.state().addresses;
    let ports: Vec<String> = (0..2000).map(|i| format!(r#"{{"port":{}}}"#, 70_000 + i)).collect();
    let service = parse(&format!(
        r#"{{"metadata":{{"name":"s","namespace":"default"}},"spec":{{"type":"NodePort","ports":[{}]}}}}"#,
        ports.join(",")
    ));
    for dry_run in [true, false] {
        let effort = Effort::default();
        let allocated = addresses.allocate(&effort, &mut service.clone(), None, dry_run).await;
        // The range has 20 node ports; a dry run does not look.
        assert_eq!(allocated.is_ok(), dry_run);
        assert!(effort.budget.spent() > 1000, "{}", effort.budget.spent());
        let effort = Effort::default();
        effort.budget.cancel();
        let refused = addresses.allocate(&effort, &mut service.clone(), None, dry_run).await.unwrap_err();
        assert_eq!(refused.code(), 504);
    }
    assert_eq!((server.allocated(), server.ports()), (BTreeSet::new(), Vec::new()), "everything is reverted");
}
