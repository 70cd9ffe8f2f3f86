use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use authn::tokens::{BoundKind, BoundObjects as _};
use storage::shared_memory::{SharedMemory, StoreStream};
use storage::{Change, Expect, Record, Store, StoreOptions, Write, WritePriority};

use super::{BaseEntry, RecentCatchUp, catch_up, entries, entry, reaches, require_current};
use crate::Ephemeral;
use crate::client::Client;
use crate::config::Data;
use crate::tokens::StoredObjects;

const KEY: &str = "/registry/configmaps/n/a";

async fn open(service: &SharedMemory) -> (Store, StoreStream) {
    let backend = service.backend();
    let stream = backend.stream();
    (Store::open(backend, StoreOptions::default()).await.unwrap(), stream)
}

async fn put(store: &Store, key: &str, value: &str) -> u64 {
    let body = format!(r#"{{"v":"{value}","r":""}}"#);
    let revision_at = u32::try_from(body.len() - 2).unwrap();
    let record = Record { body: body.into(), revision_at, facts: bytes::Bytes::new() };
    let (change, priority) = (Change::Put(record), WritePriority::Ordinary);
    let write = Write { key: key.into(), expect: Expect::Any, change, priority, ttl: None };
    store.commit(write).await.unwrap().revision
}

#[tokio::test(start_paused = true)]
async fn a_read_falls_back_to_the_backend_when_memory_stays_behind() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    stream.pause();
    let revision = put(&one, KEY, "1").await;
    assert_eq!(catch_up(&two).await.unwrap(), Some(revision));
    assert!(two.get(KEY).is_none());
    assert_eq!(entry(&two, KEY).await.unwrap().unwrap().revision, revision);
    assert_eq!(entries(&two, "/registry/configmaps/").await.unwrap().len(), 1);
    assert!(!reaches(&two, revision).await);
    stream.resume();
    assert!(reaches(&two, revision).await);
    assert_eq!(catch_up(&two).await.unwrap(), None);
}

#[tokio::test]
async fn a_base_entry_has_changed_only_if_memory_was_behind() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    put(&one, KEY, "1").await;
    two.fresh().await.unwrap();
    let mut base = BaseEntry::in_memory(&two, KEY);
    assert!(!base.has_changed().await.unwrap());
    stream.deliver_on_request();
    let mut base = BaseEntry::in_memory(&two, KEY);
    let revision = put(&one, KEY, "2").await;
    assert!(base.has_changed().await.unwrap());
    assert_eq!(base.entry().unwrap().revision, revision);
    assert!(!base.has_changed().await.unwrap(), "it is verified once");
}

#[tokio::test]
async fn a_token_is_accepted_when_another_server_created_its_service_account() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    stream.deliver_on_request();
    put(&one, "/registry/serviceaccounts/n/a", "1").await;
    let objects = StoredObjects::in_memory(two);
    assert!(objects.get(BoundKind::ServiceAccount, "n", "a").await.unwrap().is_some());
    assert!(objects.get(BoundKind::ServiceAccount, "n", "b").await.unwrap().is_none());
}

#[tokio::test]
async fn a_token_is_issued_for_an_object_as_another_server_has_written_it() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    put(&one, "/registry/pods/n/a", "1").await;
    two.fresh().await.unwrap();
    stream.deliver_on_request();
    put(&one, "/registry/pods/n/a", "2").await;
    let version = async |objects: StoredObjects| {
        let pod = objects.get(BoundKind::Pod, "n", "a").await.unwrap().unwrap();
        pod.str_at(&["v"]).unwrap().to_owned()
    };
    assert_eq!(version(StoredObjects::in_memory(two.clone())).await, "1", "verified with memory");
    assert_eq!(version(StoredObjects::newest(two)).await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_needs_current_memory_is_refused_while_it_is_behind() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    require_current(&two).await.unwrap();
    stream.pause();
    put(&one, KEY, "1").await;
    assert_eq!(require_current(&two).await.unwrap_err().code(), 503);
    stream.resume();
    require_current(&two).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_recent_answer_of_the_backend_is_used_again_for_a_short_time() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    let recent = RecentCatchUp::default();
    assert!(recent.catch_up(&two).await.unwrap().1.is_none());
    stream.pause();
    let revision = put(&one, KEY, "1").await;
    assert!(recent.catch_up(&two).await.unwrap().1.is_none(), "the first answer is recent");
    tokio::time::advance(RecentCatchUp::MAX_AGE).await;
    assert_eq!(recent.catch_up(&two).await.unwrap().1, Some(revision));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exact_list_is_read_from_the_backend_if_memory_does_not_reach_its_revision() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let service = SharedMemory::new();
    let (writer, _) = open(&service).await;
    let backend = service.backend();
    let stream = backend.stream();
    let server =
        Ephemeral::start_with(|config| config.storage.data = Data::Backend(Arc::new(backend))).await.unwrap();
    let client = Client::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    let map = value::json::parse(br#"{"metadata":{"name":"a"}}"#).unwrap();
    let begin = Instant::now();
    while client.create(MAPS, &map).await.is_err_and(|status| status.code() != 409) {
        assert!(begin.elapsed() < Duration::from_secs(30), "the namespace does not exist");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let names = |list: &value::Value| -> Vec<String> {
        let items = list.at(&["items"]).and_then(value::Value::as_list).unwrap_or_default();
        items.iter().map(|item| item.str_at(&["metadata", "name"]).unwrap().to_owned()).collect()
    };
    stream.pause();
    writer.fresh().await.unwrap();
    let (key, expect) = ("/registry/configmaps/default/a".into(), Expect::Any);
    let (change, priority) = (Change::Delete, WritePriority::Ordinary);
    let deletion = Write { key, expect, change, priority, ttl: None };
    let revision = writer.commit(deletion).await.unwrap().revision;
    let exact = |revision| format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let list = client.get(&exact(revision)).await.unwrap();
    assert_eq!(list.str_at(&["metadata", "resourceVersion"]), Some(revision.to_string().as_str()));
    assert!(!names(&list).contains(&"a".to_owned()), "{list:?}");
    let before = client.get(&exact(revision - 1)).await.unwrap();
    assert!(names(&before).contains(&"a".to_owned()), "{before:?}");
    // The backend does not have it either.
    let status = client.get(&exact(revision + 1000)).await.unwrap_err();
    assert_eq!(status.code(), 504);
    let message = format!("Too large resource version: {}, current: ", revision + 1000);
    assert!(status.to_string().contains(&message), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_write_that_does_not_come_into_force_is_answered_after_some_seconds() {
    let server = Ephemeral::start().await.unwrap();
    let state = Arc::clone(server.running.state());
    let find = |group: &str, plural: &str| {
        state.apis.catalog.find(&group.into(), &"v1".into(), &plural.into()).unwrap()
    };
    let waits = async |group: &str, plural: &str| {
        let kind = find(group, plural);
        let waiting = state.in_force(&kind, state.storage.store.revision() + 1_000_000);
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        assert!(waited.is_ok(), "{plural}");
    };
    tokio::join!(
        waits(authz::rbac::GROUP, "clusterroles"),
        waits("apiextensions.k8s.io", "customresourcedefinitions"),
        waits("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    );
}
