//! Two servers on one store: a server that has not received the changes of the other answers as if it had.
//!
//! The second server receives changes only when it asks the backend for its current revision, or writes. So a handler that answers from
//! memory alone fails these tests.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Status, meta};
use authn::InternalIdentity;
use http::Method;
use requests::request_info::Query;
use server::client::Client;
use server::{Data, Ephemeral};
use storage::shared_memory::{SharedFailure, SharedMemory, StoreStream};
use value::{Value, json};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

struct Servers {
    service: SharedMemory,
    one: Client,
    two: Client,
    /// The changes that the second server receives.
    stream: StoreStream,
    running: [Ephemeral; 2],
}

async fn start_server(service: &SharedMemory) -> (Ephemeral, Client, StoreStream) {
    let backend = service.backend();
    let stream = backend.stream();
    let ephemeral =
        Ephemeral::start_with(|config| config.storage.data = Data::Backend(Arc::new(backend))).await.unwrap();
    let client = Client::new(Arc::clone(ephemeral.running.state()), InternalIdentity::ApiServer);
    (ephemeral, client, stream)
}

impl Servers {
    async fn start() -> Servers {
        let service = SharedMemory::new();
        let (first, one, _) = start_server(&service).await;
        let (second, two, stream) = start_server(&service).await;
        let begin = Instant::now();
        while one.get("/api/v1/namespaces/default/serviceaccounts/default").await.is_err() {
            assert!(begin.elapsed() < PATIENCE, "the servers are not ready");
            tokio::task::yield_now().await;
        }
        Servers { service, one, two, stream, running: [first, second] }
    }

    /// Creates an object through the first server, of which the second does not know yet.
    async fn create(&self, path: &str, object: &str) -> Value {
        self.stream.deliver_on_request();
        self.one.create(path, &parse(object)).await.unwrap_or_else(|status| panic!("POST {path}: {status}"))
    }

    /// Creates an object that both servers know.
    async fn create_known(&self, path: &str, object: &str) -> Value {
        let created = self.create(path, object).await;
        self.stream.resume();
        let named = format!("{path}/{}", meta::name(&created));
        self.two.get(&named).await.unwrap_or_else(|status| panic!("GET {named}: {status}"));
        created
    }

    /// Changes an object through the first server, without the knowledge of the second.
    async fn patch(&self, path: &str, patch: &str) -> Value {
        self.stream.deliver_on_request();
        self.one.merge_patch(path, &parse(patch)).await.unwrap()
    }

    /// Deletes an object through the first server, without the knowledge of the second.
    async fn delete(&self, path: &str) {
        self.stream.deliver_on_request();
        self.one.delete(path, &parse("{}")).await.unwrap();
    }
}

fn code(result: Result<Value, Status>) -> u16 {
    result.map_or_else(|status| status.code(), |_| 200)
}

fn pod(name: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"spec":{{{more}"containers":[{{"name":"c","image":"i"}}]}}}}"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_and_list_see_the_writes_of_the_other_server() {
    let servers = Servers::start().await;
    servers.create(MAPS, r#"{"metadata":{"name":"a"},"data":{"v":"1"}}"#).await;
    let path = format!("{MAPS}/a");
    assert_eq!(servers.two.get(&path).await.unwrap().str_at(&["data", "v"]), Some("1"));
    servers.patch(&path, r#"{"data":{"v":"2"}}"#).await;
    assert_eq!(servers.two.get(&path).await.unwrap().str_at(&["data", "v"]), Some("2"));
    servers.patch(&path, r#"{"data":{"v":"3"}}"#).await;
    let list = servers.two.get(MAPS).await.unwrap();
    let listed = list.list_at(&["items"]).iter().find(|item| meta::name(item) == "a").unwrap();
    assert_eq!(listed.str_at(&["data", "v"]), Some("3"));
    // resourceVersion=0 accepts any state and does not ask the store.
    servers.stream.pause();
    servers.one.merge_patch(&path, &parse(r#"{"data":{"v":"4"}}"#)).await.unwrap();
    let any = servers.two.get(&format!("{path}?resourceVersion=0")).await.unwrap();
    assert_eq!(any.str_at(&["data", "v"]), Some("3"));
    servers.delete(&path).await;
    assert_eq!(code(servers.two.get(&path).await), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_the_revision_that_the_client_has_seen() {
    let servers = Servers::start().await;
    for (name, path) in [("a", format!("{MAPS}/a")), ("b", MAPS.to_owned())] {
        servers.stream.pause();
        let object = parse(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
        let created = servers.one.create(MAPS, &object).await.unwrap();
        let path = format!("{path}?resourceVersion={}", meta::resource_version(&created));
        let two = servers.two.clone();
        let waiting = tokio::spawn(async move { two.get(&path).await });
        tokio::task::yield_now().await;
        servers.stream.resume();
        waiting.await.unwrap().unwrap();
    }
    let future = format!("{MAPS}/a?resourceVersion=1000000");
    assert_eq!(code(servers.two.get(&future).await), 504);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_based_on_the_newest_object() {
    let servers = Servers::start().await;
    let path = format!("{MAPS}/a");
    // PATCH and apply of an object that this server does not know.
    servers.create(MAPS, r#"{"metadata":{"name":"a"},"data":{"v":"1"}}"#).await;
    servers.two.merge_patch(&path, &parse(r#"{"data":{"w":"1"}}"#)).await.unwrap();
    servers.create(MAPS, r#"{"metadata":{"name":"applied"}}"#).await;
    let config =
        parse(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"v":"1"}}"#);
    let apply = format!("{MAPS}/applied?fieldManager=test");
    servers.two.request(Method::PATCH, &apply, "application/apply-patch+yaml", Some(&config)).await.unwrap();
    // PUT with the revision that the other server answered with.
    let newest = servers.patch(&path, r#"{"data":{"v":"2"}}"#).await;
    let updated = servers.two.update(&path, &newest).await.unwrap();
    assert_eq!(meta::resource_version(&updated), meta::resource_version(&newest), "nothing to write");
    let newest = servers.patch(&path, r#"{"data":{"v":"3"}}"#).await;
    let mut changed = newest.clone();
    changed.set_at(&["data", "v"], "4");
    servers.two.update(&path, &changed).await.unwrap();
    // With a revision that is really old it is a conflict.
    assert_eq!(code(servers.two.update(&path, &changed).await), 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_changes_nothing_in_an_old_object_is_not_lost() {
    let servers = Servers::start().await;
    servers.create_known(MAPS, r#"{"metadata":{"name":"a"},"data":{"v":"1"}}"#).await;
    let path = format!("{MAPS}/a");
    servers.patch(&path, r#"{"data":{"v":"2"}}"#).await;
    let answer = servers.two.merge_patch(&path, &parse(r#"{"data":{"v":"1"}}"#)).await.unwrap();
    assert_eq!(answer.str_at(&["data", "v"]), Some("1"));
    assert_eq!(servers.one.get(&path).await.unwrap().str_at(&["data", "v"]), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_are_based_on_the_newest_object() {
    let servers = Servers::start().await;
    let path = format!("{MAPS}/a");
    servers.create(MAPS, r#"{"metadata":{"name":"a"}}"#).await;
    servers.two.delete(&path, &parse("{}")).await.unwrap();
    // A precondition on an object that was created again.
    servers.create_known(MAPS, r#"{"metadata":{"name":"a"}}"#).await;
    servers.delete(&path).await;
    let again = servers.create(MAPS, r#"{"metadata":{"name":"a"}}"#).await;
    let options = format!(r#"{{"preconditions":{{"uid":"{}"}}}}"#, meta::uid(&again));
    servers.two.delete(&path, &parse(&options)).await.unwrap();
    servers.create(MAPS, r#"{"metadata":{"name":"b","labels":{"of":"collection"}}}"#).await;
    let collection = format!("{MAPS}?labelSelector=of%3Dcollection");
    servers.two.request(Method::DELETE, &collection, "application/json", None).await.unwrap();
    assert_eq!(code(servers.one.get(&format!("{MAPS}/b")).await), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_finds_objects_that_the_other_server_created() {
    let servers = Servers::start().await;
    servers.create("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    servers.two.create(maps, &parse(r#"{"metadata":{"name":"a"}}"#)).await.unwrap();
    servers.create("/api/v1/namespaces/default/serviceaccounts", r#"{"metadata":{"name":"s"}}"#).await;
    servers.two.create(PODS, &parse(&pod("a", r#""serviceAccountName":"s","#))).await.unwrap();
    servers
        .create("/apis/scheduling.k8s.io/v1/priorityclasses", r#"{"metadata":{"name":"high"},"value":7}"#)
        .await;
    servers.two.create(PODS, &parse(&pod("b", r#""priorityClassName":"high","#))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_are_based_on_the_newest_object() {
    let servers = Servers::start().await;
    servers.create(PODS, &pod("a", "")).await;
    let binding = parse(r#"{"metadata":{"name":"a"},"target":{"kind":"Node","name":"node"}}"#);
    servers.two.create(&format!("{PODS}/a/binding"), &binding).await.unwrap();
    // An eviction of a pod that this server does not know, against a budget that it does not know either.
    servers.create(PODS, &pod("b", "")).await;
    servers.patch(&format!("{PODS}/b/status"), r#"{"status":{"phase":"Running"}}"#).await;
    let budget =
        r#"{"metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"b"}}}}"#;
    servers.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget).await;
    let eviction = parse(r#"{"metadata":{"name":"b"}}"#);
    assert_eq!(code(servers.two.create(&format!("{PODS}/b/eviction"), &eviction).await), 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_resource_is_served_by_both_servers_at_once() {
    let servers = Servers::start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    servers
        .create(
            crds,
            r#"{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#,
        )
        .await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let begin = Instant::now();
    while servers.one.get(things).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "the resource is not served");
        tokio::task::yield_now().await;
    }
    servers.two.get(things).await.unwrap();
    assert_eq!(code(servers.two.get("/apis/nowhere.example.com/v1/things").await), 404);
}

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

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// The number of pods that a quota counts.
async fn counted_pods(servers: &Servers, name: &str) -> Option<i64> {
    let quota = servers.one.get(&format!("{QUOTAS}/{name}")).await.unwrap();
    quota.str_at(&["status", "used", "pods"]).map(|count| count.parse().unwrap())
}

async fn create_pod_quota(servers: &Servers, hard: i64) {
    let quota = format!(r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{{"pods":"{hard}"}}}}}}"#);
    servers.create_known(QUOTAS, &quota).await;
    // The built-in controllers do not run here.
    let status = format!(r#"{{"status":{{"hard":{{"pods":"{hard}"}},"used":{{"pods":"0"}}}}}}"#);
    servers.one.merge_patch(&format!("{QUOTAS}/q/status"), &parse(&status)).await.unwrap();
    servers.stream.resume();
    servers.two.get(&format!("{QUOTAS}/q")).await.unwrap();
}

/// Creates pods through a server until its quota is exhausted; returns how many were created. A conflict with the other server is
/// repeated, as clients do.
async fn create_pods(client: Client, prefix: &str) -> usize {
    let mut created = 0;
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "the quota is not exhausted");
        let object = parse(&pod(&format!("{prefix}{created}"), ""));
        match client.create(PODS, &object).await {
            Ok(_) => created += 1,
            Err(status) if status.code() == 403 => {
                assert!(status.message().contains("exceeded quota: q"), "{status}");
                return created;
            }
            Err(status) => assert_eq!(status.code(), 409, "{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_admits_exactly_its_limit_while_two_servers_create() {
    const LIMIT: i64 = 25;
    let servers = Servers::start().await;
    create_pod_quota(&servers, LIMIT).await;
    let racing = [(&servers.one, "a"), (&servers.two, "b"), (&servers.one, "c"), (&servers.two, "d")]
        .map(|(client, prefix)| tokio::spawn(create_pods(client.clone(), prefix)));
    let mut created = 0;
    for creating in racing {
        created += creating.await.unwrap();
    }
    assert_eq!(i64::try_from(created).unwrap(), LIMIT);
    assert_eq!(servers.one.get(PODS).await.unwrap().list_at(&["items"]).len(), created);
    assert_eq!(counted_pods(&servers, "q").await, Some(LIMIT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_admits_exactly_its_limit_on_a_server_with_old_usage_in_memory() {
    const LIMIT: i64 = 10;
    let servers = Servers::start().await;
    create_pod_quota(&servers, LIMIT).await;
    // The second server learns of the charges of the first only when it asks or writes.
    servers.stream.deliver_on_request();
    let first = create_pods(servers.one.clone(), "a").await;
    assert_eq!(i64::try_from(first).unwrap(), LIMIT);
    let refused = servers.two.create(PODS, &parse(&pod("late", ""))).await.unwrap_err();
    assert_eq!(refused.code(), 403, "{refused}");
    // Released usage that it does not know of is available at once.
    servers.stream.deliver_on_request();
    let released = parse(r#"{"status":{"used":{"pods":"9"}}}"#);
    servers.one.delete(&format!("{PODS}/a0"), &parse(r#"{"gracePeriodSeconds":0}"#)).await.unwrap();
    servers.one.merge_patch(&format!("{QUOTAS}/q/status"), &released).await.unwrap();
    assert_eq!(create_pods(servers.two.clone(), "b").await, 1);
    assert_eq!(counted_pods(&servers, "q").await, Some(LIMIT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_shared_store_reach_the_client_as_in_kube_apiserver() {
    let servers = Servers::start().await;
    let key = "/registry/configmaps/default/a";
    let map = parse(r#"{"metadata":{"name":"a"}}"#);
    for (failure, code, message) in [
        (SharedFailure::NotStored, 500, "etcdserver: no leader"),
        (
            SharedFailure::TimedOut,
            504,
            "Timeout: request did not complete within requested timeout - context deadline exceeded",
        ),
    ] {
        servers.service.fail_next_commit(key, failure);
        let refused = servers.one.create(MAPS, &map).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (code, message));
        assert_eq!(code_of_reason(&refused), code);
        assert_eq!(self::code(servers.one.get(&format!("{MAPS}/a")).await), 404, "nothing is repeated");
    }
    servers.service.set_unreachable(true);
    for (path, any) in [(MAPS.to_owned(), "?resourceVersion=0"), (format!("{MAPS}/b"), "")] {
        let refused = servers.one.get(&path).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (500, "connection refused"), "{path}");
        if !any.is_empty() {
            servers.one.get(&format!("{path}{any}")).await.unwrap();
        }
    }
    let refused = servers.one.create(MAPS, &map).await.unwrap_err();
    let message = "Internal error occurred: the store cannot write; nothing was changed";
    assert_eq!((refused.code(), refused.message()), (500, message));
    servers.service.set_unreachable(false);
    servers.one.create(MAPS, &map).await.unwrap();
}

/// 504 has the reason Timeout; a message of etcd has none.
fn code_of_reason(status: &Status) -> u16 {
    match status.to_value().str_at(&["reason"]) {
        Some("Timeout") => 504,
        None => 500,
        Some(_) => 0,
    }
}

/// The status code of a health page.
async fn health(server: &Ephemeral, path: &str) -> Option<u16> {
    let health = &server.running.state().serving.health;
    health.probe_store(path).await;
    health.page(path, &Query::default(), false).map(|(code, _)| code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_fail_while_the_shared_store_is_away_and_recover() {
    let servers = Servers::start().await;
    let paths =
        ["/healthz/etcd", "/livez/etcd", "/readyz/etcd", "/readyz/etcd-readiness", "/livez", "/readyz"];
    let [first, _] = &servers.running;
    let all = async |expected: bool| {
        for path in paths {
            let begin = Instant::now();
            // The result of a read stands for half of the timeout.
            while (health(first, path).await == Some(200)) != expected {
                assert!(begin.elapsed() < PATIENCE, "{path} is not {expected}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    all(true).await;
    servers.service.set_unreachable(true);
    all(false).await;
    servers.service.set_unreachable(false);
    all(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_may_be_stored_is_not_repeated() {
    let servers = Servers::start().await;
    let (path, key) = (format!("{MAPS}/a"), "/registry/configmaps/default/a");
    let created = servers.create_known(MAPS, r#"{"metadata":{"name":"a"},"data":{"v":"1"}}"#).await;
    let unknown = (500, "etcdserver: request timed out".to_owned());
    let outcome = |status: Status| (status.code(), status.message().to_owned());

    let mut update = created;
    update.set_at(&["data", "v"], "2");
    servers.service.fail_next_commit(key, SharedFailure::StoredUnknown);
    assert_eq!(outcome(servers.two.update(&path, &update).await.unwrap_err()), unknown, "not a conflict");
    let updated = servers.two.get(&path).await.unwrap();
    assert_eq!(updated.str_at(&["data", "v"]), Some("2"), "it is stored");

    servers.service.fail_next_commit(key, SharedFailure::StoredUnknown);
    let before = meta::resource_version(&updated).parse::<u64>().unwrap();
    let patched = servers.two.merge_patch(&path, &parse(r#"{"data":{"v":"3"}}"#)).await.unwrap_err();
    assert_eq!(outcome(patched), unknown);
    let patched = servers.two.get(&path).await.unwrap();
    assert_eq!(meta::resource_version(&patched).parse::<u64>().unwrap(), before + 1, "it is stored once");

    servers.service.fail_next_commit(key, SharedFailure::StoredUnknown);
    let deleted = servers.two.delete(&path, &parse("{}")).await.unwrap_err();
    assert_eq!(outcome(deleted), unknown, "not 404");
    assert_eq!(code(servers.two.get(&path).await), 404, "it is deleted");
}
