//! The quota: which writes a full store rejects, and that the file size stays bounded.

use std::sync::Arc;

use storage::{
    Backend, Change, CommitError, Embedded, Expect, Memory, Record, Store, StoreOptions, Write, WritePriority,
};

const QUOTA: u64 = 4 << 20;
/// Size of the test records; the headroom for system writes is larger than this.
const RECORD: usize = 64 << 10;

fn options() -> StoreOptions {
    StoreOptions { quota: Some(QUOTA), ..StoreOptions::default() }
}

fn write(name: &str, size: usize, priority: WritePriority) -> Write {
    let record = Record { body: vec![b'x'; size].into(), revision_at: 0, facts: Vec::new().into() };
    let (expect, change) = (Expect::Any, Change::Put(record));
    Write { key: format!("/r/g/t/{name}").into(), expect, change, priority, ttl: None }
}

fn delete(name: &str) -> Write {
    let key = format!("/r/g/t/{name}").into();
    let priority = WritePriority::Ordinary;
    Write { key, expect: Expect::Any, change: Change::Delete, priority, ttl: None }
}

/// Writes records until one is rejected; returns how many were written.
async fn fill(store: &Store) -> usize {
    let mut written = 0;
    loop {
        match store.commit(write(&format!("r{written}"), RECORD, WritePriority::Ordinary)).await {
            Ok(_) => written += 1,
            Err(CommitError::OverQuota { quota: QUOTA, .. }) => return written,
            Err(other) => panic!("{other}"),
        }
    }
}

async fn a_full_store_refuses_what_needs_room_until_enough_is_free(backend: impl Backend) {
    let store = Store::open(backend, options()).await.unwrap();
    let written = fill(&store).await;
    assert!(written > 50);
    let space = store.space();
    assert!(space.alarm && space.live <= QUOTA && space.live > QUOTA / 10 * 9, "{space:?}");

    // Small writes are rejected as well; reads, deletions, and writes that need no space are not.
    let small = || write("small", 1, WritePriority::Ordinary);
    assert!(matches!(store.commit(small()).await, Err(CommitError::OverQuota { .. })));
    assert!(store.get("/r/g/t/r0").is_some());
    store.commit(write("r0", RECORD, WritePriority::Ordinary)).await.unwrap();
    store.commit(write("r0", RECORD - 1, WritePriority::Ordinary)).await.unwrap();
    assert!(store.commit(write("r0", RECORD, WritePriority::Ordinary)).await.is_err());
    store.commit(write("lease", RECORD, WritePriority::Essential)).await.unwrap();
    store.commit(write("system", RECORD, WritePriority::System)).await.unwrap();
    store.commit(delete("system")).await.unwrap();
    store.commit(delete("lease")).await.unwrap();

    // The alarm is cleared only when a twentieth of the quota is free.
    store.commit(delete("r1")).await.unwrap();
    assert!(store.space().alarm);
    assert!(store.commit(small()).await.is_err());
    for number in 2..6 {
        store.commit(delete(&format!("r{number}"))).await.unwrap();
    }
    assert!(!store.space().alarm);
    store.commit(small()).await.unwrap();
}

async fn concurrent_writers_stay_within_the_quota(backend: impl Backend) {
    let store = Arc::new(Store::open(backend, options()).await.unwrap());
    let writers = (0..16).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in 0..40 {
                let write = write(&format!("w{writer}-{number}"), RECORD, WritePriority::Ordinary);
                let _ = store.commit(write).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let space = store.space();
    assert!(space.alarm && space.live <= QUOTA, "{space:?}");
    assert_eq!(store.count("/r/"), usize::try_from(space.live).unwrap() / RECORD);
}

async fn even_the_server_itself_has_a_limit(backend: impl Backend) {
    let store = Store::open(backend, options()).await.unwrap();
    let mut number = 0;
    let refused = loop {
        let write = write(&format!("s{number}"), RECORD, WritePriority::System);
        match store.commit(write).await {
            Ok(_) => number += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, CommitError::OverQuota { .. }));
    let live = store.space().live;
    assert!(live > QUOTA && live <= 2 * QUOTA, "{live}");
}

fn embedded() -> (tempfile::TempDir, Embedded) {
    let directory = tempfile::tempdir().unwrap();
    let backend = Embedded::at(directory.path().join("store"));
    (directory, backend)
}

#[tokio::test]
async fn memory_refuses_what_needs_room_when_full() {
    a_full_store_refuses_what_needs_room_until_enough_is_free(Memory::new()).await;
}

#[tokio::test]
async fn embedded_refuses_what_needs_room_when_full() {
    let (_parent, backend) = embedded();
    a_full_store_refuses_what_needs_room_until_enough_is_free(backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_holds_concurrent_writers_to_the_quota() {
    concurrent_writers_stay_within_the_quota(Memory::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_holds_concurrent_writers_and_group_commits_to_the_quota() {
    let (_parent, backend) = embedded();
    concurrent_writers_stay_within_the_quota(backend).await;
}

#[tokio::test]
async fn system_writes_are_refused_beyond_the_quota_headroom() {
    even_the_server_itself_has_a_limit(Memory::new()).await;
    let (_parent, backend) = embedded();
    even_the_server_itself_has_a_limit(backend).await;
}

#[tokio::test]
async fn storage_usage_survives_a_restart_and_a_lowered_quota_raises_the_alarm() {
    let (directory, backend) = embedded();
    let store = Store::open(backend, options()).await.unwrap();
    fill(&store).await;
    for number in 0..20 {
        store.commit(delete(&format!("r{number}"))).await.unwrap();
    }
    store.commit(write("r30", 10, WritePriority::Ordinary)).await.unwrap();
    let before = store.space();
    assert!(!before.alarm);
    store.close().await;
    drop(store);

    let again = |quota| StoreOptions { quota: Some(quota), ..StoreOptions::default() };
    let at = || Embedded::at(directory.path().join("store"));
    let store = Store::open(at(), again(QUOTA)).await.unwrap();
    assert_eq!(store.space().live, before.live);
    store.close().await;
    drop(store);

    let store = Store::open(at(), again(before.live / 2)).await.unwrap();
    assert!(store.space().alarm);
    assert!(store.commit(write("new", 10, WritePriority::Ordinary)).await.is_err());
    store.commit(write("system", 10, WritePriority::System)).await.unwrap();
    store.commit(delete("r40")).await.unwrap();
}

#[tokio::test]
async fn the_file_size_is_bounded_under_replacement_and_deletion() {
    let (_parent, backend) = embedded();
    let store = Store::open(backend, options()).await.unwrap();
    let mut most = 0;
    // Write eight times the quota.
    for round in 0..8 * QUOTA / RECORD as u64 {
        let name = format!("churn{}", round % 8);
        store.commit(write(&name, RECORD, WritePriority::Ordinary)).await.unwrap();
        if round % 5 == 0 {
            store.commit(delete(&name)).await.unwrap();
        }
        most = most.max(store.space().file);
    }
    println!("a quota of {QUOTA} bytes, a file of {most} bytes at most");
    assert!(!store.space().alarm);
    assert!(most <= 4 * QUOTA, "{most}");
}
