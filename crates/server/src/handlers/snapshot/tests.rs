use storage::{Change, Expect, Memory, Record, Store, StoreOptions, Write, WritePriority};
use tokio::sync::Semaphore;

use super::*;

async fn store_of(entries: usize) -> Store {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    for name in 0..entries {
        let body = format!(r#"{{"v":"{}","r":""}}"#, "x".repeat(PIECE));
        let revision_at = u32::try_from(body.len() - 2).unwrap();
        let record = Record { body: body.into(), revision_at, facts: Bytes::new() };
        let (change, priority) = (Change::Put(record), WritePriority::Ordinary);
        let key = format!("/registry/configmaps/n/{name}").into();
        store.commit(Write { key, expect: Expect::Any, change, priority, ttl: None }).await.unwrap();
    }
    store
}

/// The runtime has one thread, and the channel has room for one part: when a part is received, the sender waits to send the next one.
#[tokio::test]
async fn the_next_snapshot_can_start_when_the_last_part_of_one_arrives() {
    for entries in [0, 1, 3] {
        let saving = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&saving).try_acquire_owned().unwrap();
        let live = store_of(entries).await.live_snapshot();
        let header =
            SnapshotHeader { revision: live.revision, store_format: FORMAT, saved_at: 0, program: program() };
        let (parts, mut receiver) = mpsc::channel(1);
        let sending = tokio::spawn(async move { send(live, header, turn, &parts, None).await });
        // Each entry fills a part, and the last part has the end of the file.
        for number in 0..entries {
            let part = receiver.recv().await;
            assert!(matches!(part, Some(ForwardedPart::Frame(_))), "{part:?}");
            let is_last_next = number + 1 == entries;
            assert_eq!(saving.available_permits(), usize::from(is_last_next), "{number} of {entries}");
        }
        let last = receiver.recv().await;
        assert!(matches!(last, Some(ForwardedPart::Frame(_))), "{last:?}");
        assert_eq!(saving.available_permits(), 1);
        assert!(matches!(receiver.recv().await, Some(ForwardedPart::End)));
        sending.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_snapshot() {
    let saving = Arc::new(Semaphore::new(1));
    let turn = Arc::clone(&saving).try_acquire_owned().unwrap();
    let live = store_of(1).await.live_snapshot();
    let header =
        SnapshotHeader { revision: live.revision, store_format: FORMAT, saved_at: 0, program: program() };
    let (parts, receiver) = mpsc::channel(1);
    drop(receiver);
    assert_eq!(send(live, header, turn, &parts, None).await, Err(disconnected()));
    assert_eq!(saving.available_permits(), 1);
}
