//! Snapshots of running and of stopped stores, and restoring them.

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::Dice;
use storage::embedded::{FORMAT, RestoreError, SaveError, StoppedStore, restore};
use storage::snapshot::{
    SnapshotEntry, SnapshotError, SnapshotHeader, SnapshotReader, SnapshotSummary, SnapshotWriter,
};
use storage::{Embedded, Expect, ListRequest, OpenError, Store, StoreOptions, WatchError, WatchFrom};

use crate::fixture::{create, key, put, record, remove, shard_end, update};

fn options() -> StoreOptions {
    StoreOptions { shard_end, ..StoreOptions::default() }
}

async fn open(directory: &Path) -> Store {
    Store::open(Embedded::at(directory), options()).await.unwrap()
}

async fn close(store: Store) {
    store.close().await;
}

/// Key, creation revision, revision and body of every entry.
type Content = Vec<(String, u64, u64, String)>;

async fn content(store: &Store) -> Content {
    let page = store.list(ListRequest::all("/")).await.unwrap();
    let body = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    page.entries.iter().map(|e| (e.key.to_string(), e.created, e.revision, body(&e.body))).collect()
}

/// Creates, updates and deletes keys of several shards.
async fn fill(store: &Store) {
    for round in 0..3 {
        for name in ["b", "a", "long-name", "c"] {
            update(store, name, &format!("{name}{round}")).await;
        }
        for other in ["/registry/core/thing/x", "/registry/core/things-2/y", "/registry/other", "/top"] {
            store.commit(put(other, Expect::Any, &round.to_string())).await.unwrap();
        }
    }
    remove(store, "b").await;
}

/// Saves a running store, as a server does.
fn save_live(store: &Store, path: &Path) -> SnapshotSummary {
    let live = store.live_snapshot();
    let count = live.len();
    let header = SnapshotHeader {
        revision: live.revision,
        store_format: FORMAT,
        saved_at: 1,
        program: "test".to_owned(),
    };
    let mut writer = SnapshotWriter::new(header, fs::File::create(path).unwrap());
    for entry in live {
        writer.entry(&SnapshotEntry::from(&*entry)).unwrap();
    }
    let summary = writer.finish().unwrap();
    assert_eq!(summary.entries, count as u64);
    summary
}

fn save_stopped(directory: &Path, path: &Path) -> SnapshotSummary {
    StoppedStore::open(directory).unwrap().save(2, "test", fs::File::create(path).unwrap()).unwrap()
}

/// A directory with paths for a store, a snapshot and a restored store.
struct Paths {
    parent: tempfile::TempDir,
    store: PathBuf,
    snapshot: PathBuf,
    restored: PathBuf,
}

impl Paths {
    fn new() -> Paths {
        let parent = tempfile::tempdir().unwrap();
        let path = |name| parent.path().join(name);
        Paths { store: path("store"), snapshot: path("snapshot"), restored: path("restored"), parent }
    }

    /// The names in the parent directory.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.parent.path()).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_restored_store_has_the_same_entries_and_revisions() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    let saved = save_live(&store, &paths.snapshot);
    let expected = content(&store).await;
    let revision = store.revision();
    assert_eq!(SnapshotReader::verify(&paths.snapshot).unwrap(), saved);

    let done = restore(&paths.snapshot, &paths.restored, 0).unwrap();
    assert_eq!((done.revision, done.snapshot), (revision, saved));
    assert_eq!(paths.names(), ["restored", "snapshot", "store"], "nothing else is left");
    let restored = open(&paths.restored).await;
    assert_eq!(content(&restored).await, expected);
    assert_eq!(restored.revision(), revision);
    // A client that has seen the last revision continues; one that has not must list again.
    assert!(restored.watch("/", WatchFrom::Revision(revision)).is_ok());
    let older = restored.watch("/", WatchFrom::Revision(revision - 1));
    assert_eq!(older.err(), Some(WatchError::Compacted { oldest: revision }));
    assert_eq!(create(&restored, "new", "1").await, revision + 1);
    // Both survive a restart.
    close(restored).await;
    let restored = open(&paths.restored).await;
    assert_eq!(restored.revision(), revision + 1);
    assert_eq!(content(&restored).await.len(), expected.len() + 1);
}

#[tokio::test]
async fn a_raised_revision_makes_clients_of_later_revisions_list_again() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    save_live(&store, &paths.snapshot);
    let (expected, saved) = (content(&store).await, store.revision());
    // Writes that the restored store does not know.
    let seen = create(&store, "after", "1").await;

    let done = restore(&paths.snapshot, &paths.restored, 1000).unwrap();
    assert_eq!(done.revision, saved + 1000);
    for _ in 0..2 {
        let restored = open(&paths.restored).await;
        assert_eq!(content(&restored).await, expected, "entries have the revisions they had");
        assert_eq!(restored.revision(), saved + 1000);
        let watch = restored.watch("/", WatchFrom::Revision(seen));
        assert_eq!(watch.err(), Some(WatchError::Compacted { oldest: saved + 1000 }));
        close(restored).await;
    }
    let restored = open(&paths.restored).await;
    assert_eq!(create(&restored, "after", "2").await, saved + 1001);

    let paths = Paths { restored: paths.parent.path().join("third"), ..paths };
    for by in [u64::MAX, i64::MAX as u64] {
        let refused = restore(&paths.snapshot, &paths.restored, by);
        assert!(matches!(refused, Err(RestoreError::TooFar { .. })), "{refused:?}");
    }
    assert!(restore(&paths.snapshot, &paths.restored, i64::MAX as u64 - saved).is_ok());
}

#[tokio::test]
async fn a_live_snapshot_is_unaffected_by_writes_while_it_is_read() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    let mut dice = Dice::new(7);
    for number in 0..2000 {
        let directory = dice.roll(9);
        let key = format!("/registry/core/d{directory}/{number}");
        store.commit(put(&key, Expect::Any, "1")).await.unwrap();
    }
    let expected = content(&store).await;
    let live = store.live_snapshot();
    assert_eq!((live.revision, live.len()), (store.revision(), 2000));
    let mut found: Content = Vec::new();
    for (index, entry) in live.into_iter().enumerate() {
        if index % 3 == 0 {
            let at = usize::try_from(dice.roll(expected.len() as u64)).unwrap();
            let write = match at % 2 {
                0 => put(&expected[at].0, Expect::Any, "changed"),
                _ => put(&format!("{}-new", expected[at].0), Expect::Any, "new"),
            };
            store.commit(write).await.unwrap();
        }
        let body = String::from_utf8(entry.body.to_vec()).unwrap();
        found.push((entry.key.to_string(), entry.created, entry.revision, body));
    }
    assert_eq!(found, expected);
    assert_ne!(content(&store).await, expected);
}

#[tokio::test]
async fn a_stopped_store_has_the_same_digest_as_a_running_one() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    let live = save_live(&store, &paths.snapshot);
    let locked = StoppedStore::open(&paths.store);
    assert!(matches!(locked, Err(OpenError::Locked(_))), "{locked:?}");
    close(store).await;

    let before = fs::read(paths.store.join("store.redb")).unwrap();
    let stopped = save_stopped(&paths.store, &paths.snapshot);
    assert_eq!((stopped.digest, stopped.bytes), (live.digest, live.bytes));
    assert_eq!(stopped.header.revision, live.header.revision);
    restore(&paths.snapshot, &paths.restored, 0).unwrap();
    let again = save_stopped(&paths.restored, &paths.parent.path().join("again"));
    assert_eq!(again.digest, live.digest, "a restored store is the same store");
    // The store remains usable, and reading has not changed its size.
    assert_eq!(fs::read(paths.store.join("store.redb")).unwrap().len(), before.len());
    assert_eq!(content(&open(&paths.store).await).await, content(&open(&paths.restored).await).await);
}

#[tokio::test]
async fn an_empty_store_is_saved_and_restored() {
    let paths = Paths::new();
    close(open(&paths.store).await).await;
    let saved = save_stopped(&paths.store, &paths.snapshot);
    assert_eq!((saved.entries, saved.header.revision), (0, 1));
    restore(&paths.snapshot, &paths.restored, 0).unwrap();
    let restored = open(&paths.restored).await;
    assert_eq!((restored.revision(), content(&restored).await.len()), (1, 0));
    assert_eq!(create(&restored, "a", "1").await, 2);
}

#[tokio::test]
async fn a_restore_never_overwrites() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    save_live(&store, &paths.snapshot);
    let expected = content(&store).await;
    for target in [&paths.store, &paths.store.join("."), &paths.parent.path().join("restored/../store")] {
        fs::create_dir_all(&paths.restored).unwrap();
        let refused = restore(&paths.snapshot, target, 0);
        assert!(matches!(refused, Err(RestoreError::NotEmpty(_))), "{refused:?}");
    }
    close(store).await;
    assert_eq!(content(&open(&paths.store).await).await, expected);

    // A link to a directory with other files, a file, and a path without a name.
    #[cfg(unix)]
    {
        let link = paths.parent.path().join("link");
        std::os::unix::fs::symlink(&paths.store, &link).unwrap();
        assert!(matches!(restore(&paths.snapshot, &link, 0), Err(RestoreError::NotEmpty(_))));
    }
    for target in [&*paths.snapshot, Path::new("/")] {
        let refused = restore(&paths.snapshot, target, 0);
        assert!(
            matches!(refused, Err(RestoreError::Target { .. } | RestoreError::NotEmpty(_))),
            "{refused:?}"
        );
    }
    assert!(SnapshotReader::verify(&paths.snapshot).is_ok(), "the snapshot itself was not overwritten");
    // An empty directory is replaced, whatever its mode was.
    restore(&paths.snapshot, &paths.restored, 0).unwrap();
    assert_eq!(content(&open(&paths.restored).await).await, expected);
}

#[tokio::test]
async fn a_damaged_snapshot_leaves_nothing_behind() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    save_live(&store, &paths.snapshot);
    let file = fs::read(&paths.snapshot).unwrap();
    for damage in [file.len() - 1, file.len() / 2, 30, 3] {
        let mut damaged = file.clone();
        damaged[damage] ^= 1;
        fs::write(&paths.snapshot, &damaged).unwrap();
        let refused = restore(&paths.snapshot, &paths.restored, 0);
        assert!(matches!(refused, Err(RestoreError::Snapshot(_))), "{refused:?}");
        fs::write(&paths.snapshot, &file[..damage]).unwrap();
        let refused = restore(&paths.snapshot, &paths.restored, 0);
        assert!(matches!(refused, Err(RestoreError::Snapshot(_))), "{refused:?}");
        assert_eq!(paths.names(), ["snapshot", "store"]);
    }
    let missing = restore(&paths.parent.path().join("none"), &paths.restored, 0);
    assert!(matches!(missing, Err(RestoreError::Snapshot(SnapshotError::Io { .. }))), "{missing:?}");
}

#[tokio::test]
async fn an_interrupted_restore_is_repeated_and_a_concurrent_one_is_refused() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    save_live(&store, &paths.snapshot);
    let building = paths.parent.path().join(".restored.restoring");
    let other = open(&building).await;
    create(&other, "foreign", "1").await;
    let refused = restore(&paths.snapshot, &paths.restored, 0);
    assert!(matches!(refused, Err(RestoreError::Open(OpenError::Locked(_)))), "{refused:?}");
    close(other).await;
    fs::write(building.join("store.redb.new"), "incomplete").unwrap();
    restore(&paths.snapshot, &paths.restored, 0).unwrap();
    let restored = open(&paths.restored).await;
    assert_eq!(content(&restored).await, content(&store).await);
    assert!(!building.exists());
}

#[tokio::test]
async fn an_older_store_is_saved_as_it_is_and_restored_for_the_older_version() {
    let paths = Paths::new();
    crate::migration::old_folder(&paths.store).await;
    let saved = save_stopped(&paths.store, &paths.snapshot);
    assert_eq!(saved.header.store_format, 1);
    // The new version migrates the store and writes to it.
    let migrate = |directory: &Path| {
        Store::open(Embedded::at(directory).migrating(crate::migration::rekey), StoreOptions::default())
    };
    let store = migrate(&paths.store).await.unwrap();
    let migrated = content(&store).await;
    let upgraded = save_live(&store, &paths.snapshot.with_extension("2"));
    assert_ne!(upgraded.digest, saved.digest, "the keys differ");
    create(&store, "written-after-the-upgrade", "1").await;
    close(store).await;

    // The snapshot that was saved before the upgrade becomes a file of format 1.
    restore(&paths.snapshot, &paths.restored, 0).unwrap();
    let again = save_stopped(&paths.restored, &paths.snapshot.with_extension("again"));
    assert_eq!((again.digest, again.header.store_format), (saved.digest, 1));
    let refused = Store::open(Embedded::at(&paths.restored), StoreOptions::default()).await;
    assert!(matches!(refused, Err(OpenError::Format { found: 1, known: FORMAT, .. })), "{refused:?}");
    // And upgrading again works.
    assert_eq!(content(&migrate(&paths.restored).await.unwrap()).await, migrated);
}

#[tokio::test]
async fn a_snapshot_of_an_unknown_store_format_is_refused() {
    let paths = Paths::new();
    let header =
        SnapshotHeader { revision: 9, store_format: FORMAT + 1, saved_at: 1, program: "newer".to_owned() };
    SnapshotWriter::new(header, fs::File::create(&paths.snapshot).unwrap()).finish().unwrap();
    let refused = restore(&paths.snapshot, &paths.restored, 0).unwrap_err();
    assert!(
        refused.to_string().contains("store of format 3, and this build knows formats 1 to 2 only"),
        "{refused}"
    );
    assert_eq!(paths.names(), ["snapshot"]);
}

#[tokio::test]
async fn entries_that_share_a_revision_are_refused() {
    let paths = Paths::new();
    let header =
        SnapshotHeader { revision: 9, store_format: FORMAT, saved_at: 1, program: "etcd".to_owned() };
    let mut writer = SnapshotWriter::new(header, fs::File::create(&paths.snapshot).unwrap());
    for name in ["a", "b"] {
        let entry =
            SnapshotEntry { key: key(name), created: 5, revision: 5, version: 1, record: record(name) };
        writer.entry(&entry).unwrap();
    }
    writer.finish().unwrap();
    let refused = restore(&paths.snapshot, &paths.restored, 0);
    assert!(matches!(refused, Err(RestoreError::SharedRevision(_))), "{refused:?}");
    assert_eq!(paths.names(), ["snapshot"]);
}

#[tokio::test]
async fn a_damaged_row_of_a_stopped_store_is_an_error_of_the_save() {
    let paths = Paths::new();
    let store = open(&paths.store).await;
    create(&store, "a", &"needle".repeat(50)).await;
    close(store).await;
    let file = paths.store.join("store.redb");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(12).position(|window| window == b"needleneedle").unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let refused = StoppedStore::open(&paths.store);
    assert!(matches!(refused, Err(OpenError::Damaged { .. })), "{refused:?}");
    let missing = StoppedStore::open(&paths.parent.path().join("other"));
    assert!(matches!(missing, Err(OpenError::DataDirectory { .. })), "{missing:?}");
}

#[tokio::test]
async fn a_full_disk_is_an_error_of_the_save() {
    /// Accepts so many bytes.
    struct Full(usize);

    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let paths = Paths::new();
    let store = open(&paths.store).await;
    fill(&store).await;
    close(store).await;
    let refused = StoppedStore::open(&paths.store).unwrap().save(1, "test", Full(100));
    assert!(matches!(refused, Err(SaveError::Write(_))), "{refused:?}");
}
