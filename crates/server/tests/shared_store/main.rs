//! Two servers on one store: a server that has not received the changes of the other answers as if it had.
//!
//! The second server receives changes only when it asks the backend for its current revision, or writes. So a handler that answers from
//! memory alone fails these tests.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod addresses;
mod crds;
mod namespaces;
mod quotas;
mod security;
mod servers;

use std::time::{Duration, Instant};

use api::{Status, meta};
use http::Method;
use requests::request_info::Query;
use server::Ephemeral;
use storage::shared_memory::SharedFailure;

use servers::{MAPS, PATIENCE, PODS, Servers, code, parse, pod};

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

    let revision = |object: &value::Value| meta::resource_version(object).parse::<u64>().unwrap();
    let mut before = revision(&updated);
    // Other writes of the servers, such as of Leases, may come between; a write that is repeated takes two revisions each time.
    for number in 3.. {
        let value = number.to_string();
        servers.service.fail_next_commit(key, SharedFailure::StoredUnknown);
        let patch = parse(&format!(r#"{{"data":{{"v":"{value}"}}}}"#));
        let patched = servers.two.merge_patch(&path, &patch).await.unwrap_err();
        assert_eq!(outcome(patched), unknown);
        let patched = servers.two.get(&path).await.unwrap();
        assert_eq!(patched.str_at(&["data", "v"]), Some(value.as_str()), "it is stored");
        let after = revision(&patched);
        if after == before + 1 {
            break;
        }
        assert!(number < 50, "the write takes {} revisions", after - before);
        before = after;
    }

    servers.service.fail_next_commit(key, SharedFailure::StoredUnknown);
    let deleted = servers.two.delete(&path, &parse("{}")).await.unwrap_err();
    assert_eq!(outcome(deleted), unknown, "not 404");
    assert_eq!(code(servers.two.get(&path).await), 404, "it is deleted");
}
