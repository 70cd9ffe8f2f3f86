use std::sync::Arc;

use storage::{Change, Expect, Memory, Record, Store, StoreOptions, StoredEntry, Write, WritePriority};

use super::{PIECE, Splice};

/// The stored form of `{"kind":1,"n":"xx…"}`.
async fn entry(filling: usize) -> Arc<StoredEntry> {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    let body = format!("{{\"kind\":1,\"n\":\"{}\"}}\n", "x".repeat(filling));
    let record = Record { body: body.into(), revision_at: 8, facts: Vec::new().into() };
    let write = Write {
        key: "/registry/a/b/c".into(),
        expect: Expect::Absent,
        change: Change::Put(record),
        priority: WritePriority::Ordinary,
        ttl: None,
    };
    store.commit(write).await.unwrap().entry
}

fn splice(items: Vec<Arc<StoredEntry>>) -> Splice {
    let stored_head =
        items.first().map_or(0, |entry| entry.body.iter().position(|b| *b == b',').unwrap() + 1);
    Splice::new(b"{\"items\":[".to_vec(), items, (b"{", stored_head), b"]}\n".to_vec())
}

#[tokio::test]
async fn list_items_are_spliced_without_kind_and_api_version() {
    let entry = entry(2).await;
    for (count, expected) in [
        (0, "{\"items\":[]}\n"),
        (1, "{\"items\":[{\"n\":\"xx\"}]}\n"),
        (3, "{\"items\":[{\"n\":\"xx\"},{\"n\":\"xx\"},{\"n\":\"xx\"}]}\n"),
    ] {
        let splice = splice(vec![Arc::clone(&entry); count]);
        assert_eq!(splice.left(), expected.len() as u64);
        assert_eq!(String::from_utf8(splice.whole()).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_long_list_is_streamed_in_small_pieces_that_add_up_to_the_whole() {
    for (filling, count) in [(100, 5000), (PIECE - 20, 3), (3 * PIECE, 2)] {
        let entry = entry(filling).await;
        let mut spliced = splice(vec![Arc::clone(&entry); count]);
        let whole = spliced.clone().whole();
        let mut joined = Vec::new();
        while let Some(piece) = spliced.next() {
            assert!(piece.len() <= PIECE + entry.body.len());
            joined.extend_from_slice(&piece);
            assert_eq!(spliced.left(), (whole.len() - joined.len()) as u64);
        }
        assert!(joined == whole);
    }
}
