//! A full disk, and a disk whose sync fails.

use std::time::Duration;

use fuzz::Dice;
use storage::{CommitError, Embedded, Expect, Store, StoreOptions, WatchFrom, Write};

use crate::disk::SimulatedDisk;
use crate::fixture::{Time, create, describe, key, now, put, update};

const ALL: &str = "/registry/core/things/";

async fn open(disk: &SimulatedDisk) -> Store {
    let disk = disk.clone();
    Store::open(Embedded::over(disk), StoreOptions::default()).await.unwrap()
}

fn unavailable(result: Result<storage::Committed, CommitError>) -> String {
    match result {
        Err(CommitError::Unavailable(reason)) => reason,
        other => panic!("available: {other:?}"),
    }
}

#[tokio::test]
async fn a_full_disk_fails_only_the_write() {
    let disk = SimulatedDisk::default();
    let store = open(&disk).await;
    create(&store, "small", "1").await;
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    disk.set_room(Some(disk.size()));
    let large = "x".repeat(1_500_000);
    let revision = store.revision();
    for _ in 0..3 {
        unavailable(store.commit(put(&key("large"), Expect::Absent, &large)).await);
        assert!(store.get(&key("large")).is_none());
        assert_eq!(now(&store, ALL).await, ["small=1"]);
        assert_eq!(store.revision(), revision);
        assert!(watch.try_next().unwrap().is_none());
    }
    // Writes that still fit succeed; once there is space again, so do the others.
    update(&store, "small", "2").await;
    assert!(store.health().is_ok());
    disk.set_room(None);
    create(&store, "large", &large).await;
    assert_eq!(store.revision(), revision + 2);
    drop((store, watch));
    disk.crash(&mut Dice::new(1));
    let store = open(&disk).await;
    assert_eq!(store.revision(), revision + 2);
    assert_eq!(store.get(&key("large")).unwrap().facts.len(), large.len());
    assert_eq!(store.get(&key("small")).unwrap().facts, "2");
}

#[tokio::test]
async fn a_crash_after_failed_syncs_loses_no_acknowledged_write() {
    for seed in 0..8 {
        let disk = SimulatedDisk::default();
        let store = open(&disk).await;
        for number in 0..50 {
            create(&store, &format!("{number:02}"), "1").await;
        }
        disk.fail_syncs(true);
        for _ in 0..3 {
            unavailable(store.commit(put(&key("00"), Expect::Any, "2")).await);
            assert!(store.health().is_err());
            assert_eq!(store.get(&key("00")).unwrap().facts, "1");
        }
        disk.fail_syncs(false);
        assert_eq!(update(&store, "00", "3").await, 52);
        assert!(store.health().is_ok());
        drop(store);
        disk.crash(&mut Dice::new(seed));
        let store = open(&disk).await;
        let live = now(&store, ALL).await;
        assert_eq!((live.len(), live[0].as_str(), store.revision()), (50, "00=3", 52));
        assert_eq!(store.get(&key("01")).unwrap().revision, 3);
        assert_eq!(update(&store, "01", "4").await, 53);
    }
}

#[tokio::test]
async fn a_file_written_after_a_failed_sync_has_the_deadlines() {
    let (disk, time) = (SimulatedDisk::default(), Time::default());
    let open = async || Store::open(Embedded::over(disk.clone()), time.options()).await.unwrap();
    let store = open().await;
    let ttl = Some(Duration::from_hours(1));
    store.commit(Write { ttl, ..put(&key("a"), Expect::Absent, "1") }).await.unwrap();
    disk.fail_syncs(true);
    unavailable(store.commit(put(&key("b"), Expect::Any, "1")).await);
    disk.fail_syncs(false);
    let last = create(&store, "b", "1").await;
    drop(store);
    disk.crash(&mut Dice::new(1));
    time.pass(3600);
    let store = open().await;
    let mut watch = store.watch(ALL, WatchFrom::Revision(last)).unwrap();
    let deleted = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
    assert_eq!(describe(&deleted), "-a=1@4");
}

#[tokio::test]
async fn a_health_check_retries_after_a_failed_sync() {
    let disk = SimulatedDisk::default();
    let store = open(&disk).await;
    disk.fail_syncs(true);
    unavailable(store.commit(put(&key("a"), Expect::Any, "1")).await);
    disk.fail_syncs(false);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while store.health().is_err() {
        assert!(std::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    assert_eq!(create(&store, "a", "1").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_share_a_sync() {
    let disk = SimulatedDisk::default();
    let store = open(&disk).await;
    let before = disk.syncs();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..500 {
        let store = store.clone();
        tasks.spawn(async move { create(&store, &number.to_string(), "1").await });
    }
    tasks.join_all().await;
    let syncs = disk.syncs() - before;
    assert!((1..=250).contains(&syncs), "{syncs} syncs for 500 writes");
    assert_eq!(store.count(ALL), 500);
}
