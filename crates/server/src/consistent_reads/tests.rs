use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use authn::tokens::{BoundKind, BoundObjects as _};
use storage::shared_memory::{SharedMemory, StoreStream};
use storage::{Change, Expect, Record, Store, StoreOptions, Write, WritePriority};

use super::{BaseEntry, RecentCatchUp, catch_up, entries, entry, reaches, require_current};
use crate::Ephemeral;
use crate::client::LoopbackClient;
use crate::config::StorageBackend;
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

/// Writes a large ServiceAccount with this UID.
async fn put_large_account(store: &Store, uid: &str) {
    let names = vec![r#"{"name":"s"}"#; 2000].join(",");
    let head = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"secrets":[{names}],"r":""#);
    let revision_at = u32::try_from(head.len()).unwrap();
    let record = Record { body: (head + "\"}").into(), revision_at, facts: bytes::Bytes::new() };
    let (change, priority) = (Change::Put(record), WritePriority::Ordinary);
    let write = Write {
        key: "/registry/serviceaccounts/n/a".into(),
        expect: Expect::Any,
        change,
        priority,
        ttl: None,
    };
    store.commit(write).await.unwrap();
}

#[tokio::test]
async fn identity_of_a_large_object_is_decoded_once_for_each_revision() {
    let service = SharedMemory::new();
    let (store, _stream) = open(&service).await;
    let objects = StoredObjects::in_memory(store.clone());
    let identity = async || objects.identity(BoundKind::ServiceAccount, "n", "a").await.unwrap();
    assert_eq!(identity().await, None);
    put_large_account(&store, "u1").await;
    store.fresh().await.unwrap();
    let (first, second) = (identity().await.unwrap(), identity().await.unwrap());
    assert_eq!(first.str_at(&["metadata", "uid"]), Some("u1"));
    assert!(Arc::ptr_eq(&first, &second));
    put_large_account(&store, "u2").await;
    store.fresh().await.unwrap();
    assert_eq!(identity().await.unwrap().str_at(&["metadata", "uid"]), Some("u2"));
    let whole = objects.get(BoundKind::ServiceAccount, "n", "a").await.unwrap().unwrap();
    assert_eq!(whole.list_at(&["secrets"]).len(), 2000);
}

#[tokio::test]
async fn identity_of_a_large_object_is_not_that_of_the_same_revision_before_a_restore() {
    let service = SharedMemory::new();
    let (store, stream) = open(&service).await;
    let objects = StoredObjects::in_memory(store.clone());
    let uid = async || {
        let identity = objects.identity(BoundKind::ServiceAccount, "n", "a").await.unwrap();
        identity.map(|identity| identity.str_at(&["metadata", "uid"]).unwrap().to_owned())
    };
    let snapshot = put(&store, KEY, "1").await;
    put_large_account(&store, "u1").await;
    assert_eq!(uid().await.as_deref(), Some("u1"));
    let key = "/registry/serviceaccounts/n/a";
    let revision = store.get(key).unwrap().revision;
    service.restore(snapshot);
    stream.reload();
    while store.get(key).is_some() {
        tokio::task::yield_now().await;
    }
    put_large_account(&store, "u2").await;
    assert_eq!(store.get(key).unwrap().revision, revision, "of an account before the restore");
    assert_eq!(uid().await.as_deref(), Some("u2"));
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
async fn an_exact_list_that_memory_does_not_reach_in_time_is_to_be_tried_again() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let service = SharedMemory::new();
    let (writer, _) = open(&service).await;
    let backend = service.backend();
    let stream = backend.stream();
    let server =
        Ephemeral::start_with(|config| config.storage.data = StorageBackend::Backend(Arc::new(backend)))
            .await
            .unwrap();
    let client = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
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
    let message = |revision| format!("Too large resource version: {revision}, current: ");
    let token = |revision| {
        let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"Z\u0000"}}"#);
        format!("{MAPS}?limit=1&continue={}", value::go::base64::RAW_URL.encode(token.as_bytes()))
    };
    let page = |revision| format!("{MAPS}?resourceVersion={revision}&limit=1");
    for path in [exact(revision), page(revision), token(revision)] {
        let status = client.get(&path).await.unwrap_err();
        assert_eq!(status.code(), 504, "{path}");
        assert!(status.to_string().contains(&message(revision)), "{path}: {status}");
        assert_eq!(status.to_value().int_at(&["details", "retryAfterSeconds"]), Some(1), "{path}");
    }
    // The backend is asked for one object.
    let one = |revision| format!("{}&fieldSelector=metadata.name%3Da", exact(revision));
    let list = client.get(&one(revision)).await.unwrap();
    assert_eq!(list.str_at(&["metadata", "resourceVersion"]), Some(revision.to_string().as_str()));
    assert!(!names(&list).contains(&"a".to_owned()), "{list:?}");
    // Memory has the revision that it has reached, without asking.
    let reached = server.running.state().storage.store.revision();
    for path in [exact(reached), one(revision - 1)] {
        let before = client.get(&path).await.unwrap();
        assert!(names(&before).contains(&"a".to_owned()), "{before:?}");
    }
    // The backend does not have it either, and suggests no retry.
    for path in [
        one(revision + 1000),
        format!(
            "/api/v1/namespaces/default/events?resourceVersion={}&resourceVersionMatch=Exact",
            revision + 1000
        ),
    ] {
        let status = client.get(&path).await.unwrap_err();
        assert_eq!(status.code(), 504, "{path}");
        assert!(status.to_string().contains(&message(revision + 1000)), "{path}: {status}");
        assert_eq!(status.to_value().int_at(&["details", "retryAfterSeconds"]), None, "{path}");
    }
    stream.resume();
    while client.get(&exact(revision)).await.is_err() {
        assert!(begin.elapsed() < Duration::from_mins(1), "memory does not catch up");
    }
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
        waits(api::groups::RBAC, "clusterroles"),
        waits("apiextensions.k8s.io", "customresourcedefinitions"),
        waits("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    );
}
