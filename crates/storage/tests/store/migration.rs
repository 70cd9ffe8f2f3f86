//! Migration of a file of the previous format, including interrupted ones.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fuzz::Dice;
use redb::{Builder, Database, TableDefinition};
use storage::embedded::StoreLocation as _;
use storage::{Embedded, OpenError, ReadError, Store, StoreOptions, StoredEntries, WatchError, WatchFrom};

use crate::disk::SimulatedDisk;
use crate::fixture::{at, create, now, remove, update};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const NEW: &str = "/registry/things/";
/// The live entries after [`fill`] and [`rekey`].
const LIVE: [&str; 3] = ["/registry/things/b=2", "/registry/things/c=4", "/registry/things/d=6"];

/// Creates, updates and deletes keys; `left-out` gets no new key.
async fn fill(store: &Store) {
    create(store, "a", "1").await;
    create(store, "b", "2").await;
    create(store, "c", "3").await;
    update(store, "c", "4").await;
    create(store, "left-out", "5").await;
    create(store, "d", "6").await;
    remove(store, "a").await;
}

/// Maps `/registry/core/things/NAME` to `/registry/things/NAME`.
pub(crate) fn rekey(entries: &StoredEntries) -> Vec<Option<Arc<str>>> {
    let new = |key: &str| (!key.contains("/left-out")).then(|| key.replace("/core/", "/").into());
    entries.iter().map(|entry| new(&entry.key)).collect()
}

/// Overwrites the format in the file. Both formats have equal rows.
fn set_format(database: &Database, format: u32) {
    let transaction = database.begin_write().unwrap();
    let text = [b"portcullis store".as_slice(), &format.to_le_bytes()].concat();
    transaction.open_table(META).unwrap().insert("format", text.as_slice()).unwrap();
    transaction.commit().unwrap();
}

/// A disk with a file of format 1.
async fn old_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let store = Store::open(Embedded::over(disk.clone()), StoreOptions::default()).await.unwrap();
    fill(&store).await;
    store.close().await;
    drop(store);
    set_format(&Builder::new().create_with_backend(disk.open().unwrap().unwrap()).unwrap(), 1);
    disk
}

/// Creates a directory with a file of format 1.
pub(crate) async fn old_folder(directory: &Path) {
    let store = Store::open(Embedded::at(directory), StoreOptions::default()).await.unwrap();
    fill(&store).await;
    store.close().await;
    drop(store);
    set_format(&Database::open(directory.join("store.redb")).unwrap(), 1);
}

async fn all(store: &Store) -> Vec<String> {
    now(store, "/").await
}

#[tokio::test]
async fn a_migration_rewrites_keys_and_preserves_the_old_file() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    old_folder(&directory).await;
    let store =
        Store::open(Embedded::at(&directory).migrating(rekey), StoreOptions::default()).await.unwrap();
    assert_eq!(all(&store).await, LIVE);
    // The sequence of revisions continues; each record retains its own.
    assert_eq!(store.revision(), 8);
    let c = store.get("/registry/things/c").unwrap();
    assert_eq!((c.created, c.revision, &*c.body), (4, 5, br#"{"v":"4","r":"5"}"#.as_slice()));
    // Earlier revisions belong to the old keys and are not available.
    assert!(matches!(at(&store, NEW, 5).await, Err(ReadError::Compacted { oldest: 8 })));
    assert!(matches!(store.watch(NEW, WatchFrom::Revision(5)), Err(WatchError::Compacted { oldest: 8 })));
    assert_eq!(create(&store, "e", "7").await, 9);
    store.close().await;
    drop(store);
    // The old file is intact: it can be migrated again.
    let other = parent.path().join("other");
    drop(Store::open(Embedded::at(&other), StoreOptions::default()).await.unwrap());
    fs::copy(directory.join("store.redb.v1"), other.join("store.redb")).unwrap();
    let again = Store::open(Embedded::at(&other).migrating(rekey), StoreOptions::default()).await.unwrap();
    assert_eq!(all(&again).await, LIVE);
    // A second start does not migrate again.
    let refuse = |_: &StoredEntries| panic!("a file of this format is migrated");
    let store =
        Store::open(Embedded::at(&directory).migrating(refuse), StoreOptions::default()).await.unwrap();
    assert_eq!(all(&store).await.len(), 4);
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["LOCK", "store.redb", "store.redb.v1"]);
}

#[tokio::test]
async fn an_old_file_without_a_migration_and_a_newer_one_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    old_folder(&directory).await;
    let refused = Store::open(Embedded::at(&directory), StoreOptions::default()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Format { found: 1, known: 2, .. }), "{refused}");
    set_format(&Database::open(directory.join("store.redb")).unwrap(), 3);
    let refused =
        Store::open(Embedded::at(&directory).migrating(rekey), StoreOptions::default()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Format { found: 3, known: 2, .. }), "{refused}");
    let message = refused.to_string();
    assert!(message.contains("has store format 3, and this build knows format 2 only"), "{message}");
    assert!(!directory.join("store.redb.v1").exists());
}

#[tokio::test]
async fn a_migration_to_invalid_keys_leaves_the_old_file_unchanged() {
    type Wrong = fn(&StoredEntries) -> Vec<Option<Arc<str>>>;
    let wrong: [(Wrong, &str); 3] = [
        (|_| Vec::new(), "4 records were mapped to 0 keys"),
        (
            |entries| entries.iter().map(|_| Some("/same".into())).collect(),
            "two records would move to `/same`",
        ),
        (|entries| entries.iter().map(|_| Some("/a/".into())).collect(), "which is not a valid key"),
    ];
    let disk = old_disk().await;
    for (rekey, why) in wrong {
        let embedded = Embedded::over(disk.clone()).migrating(rekey);
        let refused = Store::open(embedded, StoreOptions::default()).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let store = Store::open(Embedded::over(disk).migrating(rekey), StoreOptions::default()).await.unwrap();
    assert_eq!(all(&store).await, LIVE);
}

/// Cuts the power after each disk operation in turn. The next start finds the old file, and migrates it, or the new one.
#[tokio::test]
async fn a_migration_that_is_interrupted_anywhere_is_done_by_the_next_start() {
    let mut dice = Dice::new(7);
    let (mut operations, mut interrupted) = (0, 0);
    loop {
        let disk = old_disk().await;
        disk.light_fuse(operations);
        let first = Store::open(Embedded::over(disk.clone()).migrating(rekey), StoreOptions::default()).await;
        let finished = first.is_ok();
        drop(first);
        disk.crash(&mut dice);
        let store = Store::open(Embedded::over(disk.clone()).migrating(rekey), StoreOptions::default()).await;
        let store = store.unwrap_or_else(|error| panic!("after {operations} operations: {error}"));
        assert_eq!(all(&store).await, LIVE, "after {operations} operations");
        assert_eq!(store.revision(), 8);
        store.close().await;
        drop(store);
        // The old file is intact as well.
        let preserved = disk.preserved().expect("the old file is kept");
        let again =
            Store::open(Embedded::over(preserved).migrating(rekey), StoreOptions::default()).await.unwrap();
        assert_eq!(all(&again).await, LIVE, "after {operations} operations");
        if finished {
            break;
        }
        interrupted += 1;
        operations += 1;
    }
    assert!(interrupted > 20, "{interrupted}");
}

/// An interruption may leave in the directory the second name of the old file and an incomplete new file.
#[tokio::test]
async fn files_left_by_an_interrupted_migration_do_not_block_the_next_one() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    old_folder(&directory).await;
    fs::hard_link(directory.join("store.redb"), directory.join("store.redb.v1")).unwrap();
    fs::write(directory.join("store.redb.v1.new"), "unfinished").unwrap();
    fs::write(directory.join("store.redb.new"), [0; 5000]).unwrap();
    let store =
        Store::open(Embedded::at(&directory).migrating(rekey), StoreOptions::default()).await.unwrap();
    assert_eq!(all(&store).await, LIVE);
    store.close().await;
    drop(store);
    let old = Database::open(directory.join("store.redb.v1")).unwrap();
    set_format(&old, 1);
    assert!(!directory.join("store.redb.v1.new").exists() && !directory.join("store.redb.new").exists());
}

/// A file preserved by an earlier migration may be the only copy of an older store.
#[tokio::test]
async fn a_file_preserved_by_an_earlier_migration_is_not_overwritten() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    old_folder(&directory).await;
    fs::write(directory.join("store.redb.v1"), "of another migration").unwrap();
    fs::write(directory.join("store.redb.v1.2"), "and of another").unwrap();
    let store =
        Store::open(Embedded::at(&directory).migrating(rekey), StoreOptions::default()).await.unwrap();
    assert_eq!(all(&store).await, LIVE);
    store.close().await;
    drop(store);
    assert_eq!(fs::read(directory.join("store.redb.v1")).unwrap(), b"of another migration");
    assert_eq!(fs::read(directory.join("store.redb.v1.2")).unwrap(), b"and of another");
    let old = Database::open(directory.join("store.redb.v1.3")).unwrap();
    set_format(&old, 1);
}
