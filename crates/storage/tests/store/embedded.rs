//! Tests of the embedded store in a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use storage::{
    Embedded, Expect, ListAt, ListRequest, OpenError, ReadError, Store, StoreOptions, WatchFrom, Write,
};

use crate::fixture::{Time, at, create, describe, key, now, put, remove, update};

const ALL: &str = "/registry/core/things/";

async fn open(directory: &Path) -> Result<Store, OpenError> {
    Store::open(Embedded::at(directory), StoreOptions::default()).await
}

/// A path for the store, and the temporary directory that contains it.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("deep").join("store");
    (parent, directory)
}

#[tokio::test]
async fn entries_and_history_survive_a_restart() {
    let (_parent, directory) = directory();
    let store = open(&directory).await.unwrap();
    create(&store, "a", "1").await;
    create(&store, "b", "2").await;
    update(&store, "a", "3").await;
    remove(&store, "b").await;
    let entry = store.get(&key("a")).unwrap();
    drop(store);
    let store = open(&directory).await.unwrap();
    assert_eq!(store.revision(), 5);
    assert_eq!(store.get(&key("a")).unwrap(), entry);
    assert_eq!(now(&store, ALL).await, ["a=3"]);
    // Old revisions can be read as well.
    assert_eq!(at(&store, ALL, 3).await.unwrap(), ["a=1", "b=2"]);
    let mut watch = store.watch(ALL, WatchFrom::Revision(2)).unwrap();
    let mut revisions = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        revisions.push(describe(&event));
    }
    assert_eq!(revisions, ["+b=2@3", "~a=3@4", "-b=2@5"]);
    assert_eq!(create(&store, "b", "4").await, 6);
}

#[tokio::test]
async fn revisions_evicted_from_memory_are_listed_from_the_file() {
    let (_parent, directory) = directory();
    let options = || StoreOptions { history_events: 10, ..StoreOptions::default() };
    let store = Store::open(Embedded::at(&directory), options()).await.unwrap();
    let mut states = Vec::new();
    for number in 0..60 {
        let name = format!("{}", number % 7);
        let revision = match number % 5 {
            4 if store.get(&key(&name)).is_some() => remove(&store, &name).await,
            _ => update(&store, &name, &number.to_string()).await,
        };
        states.push((revision, now(&store, ALL).await));
    }
    for (revision, state) in &states {
        assert_eq!(at(&store, ALL, *revision).await.unwrap(), *state);
        let list = ListRequest { at: ListAt::Exact(*revision), limit: 2, after: Some(&key("1")), scope: ALL };
        let page = store.list(list).await.unwrap();
        let expected = state.iter().filter(|item| item.as_str() > "1~").count();
        assert_eq!(page.entries.len() + usize::try_from(page.remaining).unwrap(), expected);
        assert_eq!(page.more.is_some(), page.remaining > 0);
    }
    store.compact(40);
    assert_eq!(at(&store, ALL, 39).await, Err(ReadError::Compacted { oldest: 40 }));
    for (revision, state) in states.iter().filter(|(revision, _)| *revision >= 40) {
        assert_eq!(at(&store, ALL, *revision).await.unwrap(), *state);
    }
    store.close().await;
    drop(store);
    let store = Store::open(Embedded::at(&directory), options()).await.unwrap();
    assert_eq!(at(&store, ALL, 39).await, Err(ReadError::Compacted { oldest: 40 }));
    for (revision, state) in states.iter().filter(|(revision, _)| *revision >= 40) {
        assert_eq!(at(&store, ALL, *revision).await.unwrap(), *state);
    }
}

#[tokio::test]
async fn compaction_keeps_the_revision_and_gives_space_back() {
    let (_parent, directory) = directory();
    let store = open(&directory).await.unwrap();
    for round in 0..20 {
        update(&store, "a", &format!("{round}-{}", "x".repeat(200_000))).await;
        store.compact(store.revision());
    }
    let last = remove(&store, "a").await;
    store.compact(last);
    store.close().await;
    drop(store);
    let size = fs::metadata(directory.join("store.redb")).unwrap().len();
    assert!(size < 4_000_000, "{size} bytes for a store that is empty");
    let store = open(&directory).await.unwrap();
    assert_eq!(store.revision(), last);
    assert_eq!(create(&store, "b", "1").await, last + 1);
}

#[tokio::test]
async fn only_one_process_opens_a_data_directory() {
    let (_parent, directory) = directory();
    let store = open(&directory).await.unwrap();
    let refused = open(&directory).await.unwrap_err();
    assert!(matches!(refused, OpenError::Locked(_)));
    assert!(refused.to_string().contains(directory.to_str().unwrap()), "{refused}");
    create(&store, "a", "1").await;
    drop(store);
    open(&directory).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn the_folder_and_its_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (_parent, directory) = directory();
    drop(open(&directory).await.unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("store.redb")), 0o600);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    let refused = open(&directory).await.unwrap_err();
    assert!(matches!(refused, OpenError::TooOpen { mode: 0o750, .. }));
    assert!(refused.to_string().contains("chmod 700"), "{refused}");
}

#[tokio::test]
async fn the_error_names_a_data_directory_that_cannot_be_created() {
    let (directory, _) = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = open(&file.join("store")).await.unwrap_err();
    assert!(matches!(refused, OpenError::DataDirectory { .. }));
    assert!(refused.to_string().contains("file/store"), "{refused}");
}

#[tokio::test]
async fn a_file_of_an_unknown_format_is_refused() {
    let (_parent, directory) = directory();
    drop(open(&directory).await.unwrap());
    let meta: redb::TableDefinition<&str, &[u8]> = redb::TableDefinition::new("meta");
    let database = redb::Database::open(directory.join("store.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let other = [b"portcullis store".as_slice(), &7_u32.to_le_bytes()].concat();
    transaction.open_table(meta).unwrap().insert("format", other.as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = open(&directory).await.unwrap_err();
    assert!(matches!(refused, OpenError::Format { found: 7, known: 2, .. }), "{refused}");
    assert!(refused.to_string().contains("format 7"), "{refused}");
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_refused() {
    let (_parent, directory) = directory();
    drop(open(&directory).await.unwrap());
    let file = directory.join("store.redb");
    fs::write(&file, "kind: ConfigMap\n".repeat(1000)).unwrap();
    assert!(matches!(open(&directory).await, Err(OpenError::NotAStore { .. })));
    fs::remove_file(&file).unwrap();
    let table: redb::TableDefinition<u64, u64> = redb::TableDefinition::new("accounts");
    let database = redb::Database::create(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(table).unwrap().insert(1, 1).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = open(&directory).await.unwrap_err();
    assert!(matches!(refused, OpenError::NotAStore { .. }));
    assert!(refused.to_string().contains("`accounts`"), "{refused}");
}

#[tokio::test]
async fn an_unfinished_new_file_is_replaced_at_the_next_start() {
    let (_parent, directory) = directory();
    drop(open(&directory).await.unwrap());
    fs::rename(directory.join("store.redb"), directory.join("store.redb.new")).unwrap();
    fs::write(directory.join("store.redb.new"), [0; 5000]).unwrap();
    let store = open(&directory).await.unwrap();
    assert_eq!(create(&store, "a", "1").await, 2);
    assert!(directory.join("store.redb").exists() && !directory.join("store.redb.new").exists());
}

/// Damages a file in many places. Opening it either fails, or finds all entries intact.
#[tokio::test]
async fn a_damaged_file_is_never_read_as_intact() {
    let (_parent, directory) = directory();
    let store = open(&directory).await.unwrap();
    for number in 0..200 {
        store.commit(put(&key(&format!("{number:03}")), Expect::Absent, &"v".repeat(500))).await.unwrap();
    }
    let expected = now(&store, ALL).await;
    store.close().await;
    drop(store);
    let file = directory.join("store.redb");
    let good = fs::read(&file).unwrap();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    let mut refused = 0;
    for part in 0..60 {
        let mut bad = good.clone();
        let at = part * used / 60;
        for byte in &mut bad[at..(at + 64).min(good.len())] {
            *byte ^= 0x55;
        }
        fs::write(&file, &bad).unwrap();
        match open(&directory).await {
            Ok(store) => assert_eq!(now(&store, ALL).await, expected, "damage at {at}"),
            Err(OpenError::Damaged { path, detail }) => {
                assert_eq!(path, file);
                assert!(!detail.is_empty());
                refused += 1;
            }
            Err(OpenError::NotAStore { .. }) => refused += 1,
            Err(other) => panic!("damage at {at}: {other}"),
        }
    }
    assert!(refused > 5, "{refused} of 60");
    fs::write(&file, &good[..good.len() / 2]).unwrap();
    let error = open(&directory).await.unwrap_err();
    assert!(error.to_string().contains("restore it from a backup"), "{error}");
    fs::write(&file, &good).unwrap();
    assert_eq!(now(&open(&directory).await.unwrap(), ALL).await, expected);
}

#[tokio::test]
async fn a_time_to_live_continues_after_a_restart() {
    let (_parent, directory) = directory();
    let time = Time::default();
    let open = async || Store::open(Embedded::at(&directory), time.options()).await.unwrap();
    let store = open().await;
    for (name, hours) in [("a", 1), ("b", 3), ("c", 1)] {
        let ttl = Some(Duration::from_hours(hours));
        store.commit(Write { ttl, ..put(&key(name), Expect::Absent, "1") }).await.unwrap();
    }
    update(&store, "c", "2").await;
    store.close().await;
    drop(store);
    for compact in [false, true] {
        time.pass(1700);
        let store = open().await;
        assert_eq!(now(&store, ALL).await, ["a=1", "b=1", "c=2"]);
        if compact {
            store.compact(store.revision());
        }
        store.close().await;
    }
    time.pass(300);
    let store = open().await;
    let mut watch = store.watch(ALL, WatchFrom::Revision(5)).unwrap();
    let deleted = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
    assert_eq!(describe(&deleted), "-a=1@6");
    assert_eq!(now(&store, ALL).await, ["b=1", "c=2"]);
}
