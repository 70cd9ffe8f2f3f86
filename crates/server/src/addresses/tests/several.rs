//! Allocations by two servers on one store, with their repair loops. The tests move the clock of the loops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::meta;
use catalog::keys;
use storage::shared_memory::{HoldPoint, SharedMemory, StoreStream};
use tokio::task::JoinSet;
use value::Value;

use super::super::limits::{GRACE, INTERVAL};
use super::{
    ADDRESSES, ANY, CIDRS, NODE_PORT, PATIENCE, SERVICES, Server, StorageBackend, cluster_ip, parse,
};
use crate::addresses::ip_address;

const SECOND: Duration = Duration::from_secs(1);

/// Ranges of the default ServiceCIDR, of both families.
const DUAL_STACK: &[&str] = &["10.0.0.0/28", "fd00::/124"];

/// A server on the shared store, and the changes that it receives.
async fn start(shared: &SharedMemory, ranges: &[&str]) -> (Arc<Server>, StoreStream) {
    let backend = shared.backend();
    let stream = backend.stream();
    (Arc::new(Server::start_on(StorageBackend::Backend(Arc::new(backend)), ranges).await), stream)
}

/// Moves the clock of all servers of the test. Requests that are under way may time out.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// An IPAddress that refers to this object.
fn address_object(address: &str, parent: &str) -> Value {
    parse(&format!(
        r#"{{"metadata":{{"name":"{address}","labels":{{"ipaddress.kubernetes.io/ip-family":"IPv4",
        "ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}}}},"spec":{{"parentRef":{parent}}}}}"#
    ))
}

/// Waits until a repair loop has examined all addresses that it knows by now: it deletes one that refers to no Service at once, and takes
/// what was due earlier first. The address is the first free one from `10.0.0.number`, because Services have random ones.
async fn examined(server: &Server, number: u8) {
    let allocated = server.allocated();
    let marker = (number..=254).map(|number| format!("10.0.0.{number}")).find(|ip| !allocated.contains(ip));
    let marker = &marker.unwrap();
    let parent = r#"{"group":"example.com","resource":"gateways","namespace":"default","name":"g"}"#;
    server.admin.create(ADDRESSES, &address_object(marker, parent)).await.unwrap();
    server.until("the loop does not run", |server| !server.allocated().contains(marker)).await;
}

/// The uid of an IPAddress: another one shows that it was deleted meanwhile.
async fn uid(server: &Server, address: &str) -> String {
    meta::uid(&server.admin.get(&format!("{ADDRESSES}/{address}")).await.unwrap()).to_owned()
}

/// Checks that every address and port is used by one Service, and allocated exactly if it is used.
async fn check_allocations(server: &Server) {
    let services = server.admin.get(SERVICES).await.unwrap();
    let (mut owners, mut ports) = (BTreeMap::new(), BTreeSet::new());
    for service in services.list_at(&["items"]) {
        let name = meta::name(service).to_owned();
        for address in service.list_at(&["spec", "clusterIPs"]) {
            let address = address.as_str().unwrap().to_owned();
            let earlier = owners.insert(address.clone(), name.clone());
            assert_eq!(earlier, None, "{address} was given to {name}, too");
        }
        for port in service.list_at(&["spec", "ports"]).iter().filter_map(|port| port.int_at(&["nodePort"])) {
            assert!(ports.insert(port), "node port {port} was given to {name}, too");
        }
    }
    server.store().fresh().await.unwrap();
    let mut allocated = BTreeMap::new();
    for address in ip_address::managed(server.store()) {
        let object = server.admin.get(&format!("{ADDRESSES}/{address}")).await.unwrap();
        let owner = object.str_at(&["spec", "parentRef", "name"]).unwrap().to_owned();
        allocated.insert(address.to_string(), owner);
    }
    assert_eq!(allocated, owners, "allocated and used addresses differ");
    assert_eq!(server.ports(), ports.into_iter().collect::<Vec<_>>(), "allocated and used ports differ");
}

/// The refusals that a client may get when ranges are full or a requested address or port is taken.
const REFUSALS: [&str; 3] =
    ["range is full", "is already allocated", "the provided network does not match the current range"];

#[tokio::test]
async fn two_servers_give_nothing_twice_and_leak_nothing() {
    const SERVICES_EACH: usize = 24;
    let shared = SharedMemory::new();
    let (one, _) = start(&shared, DUAL_STACK).await;
    let (two, stream) = start(&shared, DUAL_STACK).await;
    one.post(CIDRS, "more", r#"{"cidrs":["10.9.0.0/28","fd09::/124"]}"#).await.unwrap();
    let deletable = "/apis/networking.k8s.io/v1/servicecidrs/more";
    // The second server receives changes only when it writes or reads: it decides on old states.
    stream.deliver_on_request();
    let created = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..2 * SERVICES_EACH {
        let own = Arc::clone(if number % 2 == 0 { &one } else { &two });
        let other = Arc::clone(if number % 2 == 0 { &two } else { &one });
        let created = Arc::clone(&created);
        tasks.spawn(async move {
            let name = format!("s{number}");
            let spec = match number / 2 % 6 {
                0 => ANY,
                1 => r#"{"ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}"#,
                2 => NODE_PORT,
                3 => r#"{"ipFamilies":["IPv6"],"ports":[{"port":80}]}"#,
                4 => r#"{"clusterIP":"10.0.0.5","ports":[{"port":80}]}"#,
                _ => r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30003}]}"#,
            };
            match own.create(&name, spec).await {
                Ok(_) => created.fetch_add(1, Ordering::Relaxed),
                Err(why) => {
                    assert!(REFUSALS.iter().any(|known| why.contains(known)), "{name}: {why}");
                    return;
                }
            };
            if number % 3 == 0 {
                other.delete(&format!("{SERVICES}/{name}")).await;
            }
        });
    }
    let (deleter, enough) = (Arc::clone(&two), Arc::clone(&created));
    tasks.spawn(async move {
        while enough.load(Ordering::Relaxed) < SERVICES_EACH / 2 {
            tokio::task::yield_now().await;
        }
        deleter.delete(deletable).await;
    });
    while let Some(task) = tokio::time::timeout(PATIENCE, tasks.join_next()).await.expect("requests hang") {
        task.unwrap();
    }
    assert!(created.load(Ordering::Relaxed) >= SERVICES_EACH, "{created:?} Services were created");
    stream.resume();
    check_allocations(&one).await;
    check_allocations(&two).await;
    // Runs of the repair loops find nothing to change.
    for run in 0..4 {
        advance(INTERVAL + SECOND).await;
        examined(&one, 200 + run).await;
        check_allocations(&one).await;
    }
}

#[tokio::test]
async fn an_unused_address_is_deleted_after_the_grace_period_and_not_earlier() {
    let shared = SharedMemory::new();
    let (server, _) = start(&shared, &["10.0.0.0/24"]).await;
    let parent = r#"{"resource":"services","namespace":"default","name":"gone"}"#;
    server.admin.create(ADDRESSES, &address_object("10.0.0.9", parent)).await.unwrap();
    examined(&server, 200).await;
    advance(GRACE.saturating_sub(SECOND)).await;
    examined(&server, 201).await;
    assert!(server.allocated().contains("10.0.0.9"), "deleted too early");
    advance(2 * SECOND).await;
    server.until("the address leaks", |server| !server.allocated().contains("10.0.0.9")).await;
}

#[tokio::test]
async fn an_address_is_not_taken_back_while_another_server_writes_its_service() {
    let shared = SharedMemory::new();
    let (one, _) = start(&shared, &["10.0.0.0/24"]).await;
    let (two, _) = start(&shared, &["10.0.0.0/24"]).await;
    let key = format!("{}default/slow", keys::SERVICES);
    let mut hold = shared.hold_next_commit(&key, HoldPoint::BeforeDecision);
    let writer = Arc::clone(&one);
    let creating = tokio::spawn(async move { writer.create("slow", ANY).await });
    tokio::time::timeout(PATIENCE, hold.reached()).await.unwrap();
    two.until("the address is not known", |server| server.allocated().len() == 1).await;
    let address = two.allocated().pop_first().unwrap();
    let before = uid(&two, &address).await;
    examined(&two, 200).await;
    advance(GRACE.saturating_sub(SECOND)).await;
    examined(&two, 201).await;
    hold.release();
    // The client may have got a timeout; the write goes on.
    drop(creating.await.unwrap());
    one.until("the Service is not stored", |server| server.store().get(&key).is_some()).await;
    let service = one.admin.get(&format!("{SERVICES}/slow")).await.unwrap();
    assert_eq!(cluster_ip(&service), address);
    advance(GRACE).await;
    examined(&two, 202).await;
    assert_eq!(uid(&two, &address).await, before, "the address was deleted meanwhile");
    check_allocations(&two).await;
}

#[tokio::test]
async fn an_unused_node_port_is_freed_in_the_third_run_that_sees_it() {
    let shared = SharedMemory::new();
    let (server, _) = start(&shared, &["10.0.0.0/24"]).await;
    server.create("used", NODE_PORT).await.unwrap();
    let used = server.ports();
    let leaked = (30000..30020).find(|port| !used.contains(port)).unwrap();
    let addresses = &server.ephemeral.running.state().addresses;
    let mut turn = addresses.0.ports.in_turn_with_newest().await.unwrap();
    let mut ports = turn.ports_of_range().unwrap();
    ports.set(leaked, true);
    turn.write(&ports).await.unwrap();
    drop(turn);
    for run in 0..2 {
        advance(INTERVAL).await;
        examined(&server, 200 + run).await;
        assert!(server.ports().contains(&leaked), "freed after {} runs", run + 1);
    }
    // A run that was late makes the next ones later.
    for run in 2..10 {
        advance(INTERVAL).await;
        examined(&server, 200 + run).await;
    }
    server.until("the port leaks", |server| server.ports() == used).await;
    check_allocations(&server).await;
}
