//! Filling a new data directory with the records of another store.

use std::path::Path;
use std::time::Duration;

use storage::backend::StoredRecord;
use storage::embedded::{ExpiringRecord, ImportDirectory, ImportError, StoppedStore, StoreImport};
use storage::{Embedded, ListRequest, MigrationMarker, OpenError, Store, StoreOptions};

use crate::fixture::{record, shard_end};

fn marker() -> MigrationMarker {
    MigrationMarker {
        source_revision: 40,
        digest: "ab".to_owned(),
        target_revision: 0,
        resume: "portcullis migrate --again".to_owned(),
    }
}

fn entry(key: &str, revision: u64, expires: Option<Duration>) -> ExpiringRecord {
    let stored = StoredRecord { key: key.into(), revision, created: revision, record: record(key) };
    ExpiringRecord { stored, expires }
}

fn import(directory: &Path) -> StoreImport {
    ImportDirectory::lock(directory).unwrap().open(&marker()).unwrap()
}

async fn open(directory: &Path) -> Result<Store, OpenError> {
    Store::open(Embedded::at(directory), StoreOptions { shard_end, ..StoreOptions::default() }).await
}

#[tokio::test]
async fn an_import_is_a_store_only_when_it_is_complete() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("data");
    let far = Duration::from_secs(1 << 40);
    let mut first = import(&directory);
    first.put(entry("/registry/a/x", 7, None)).unwrap();
    first.flush().unwrap();
    // Not written: the process ends.
    first.put(entry("/registry/a/y", 8, None)).unwrap();
    drop(first);

    let refused = open(&directory).await.unwrap_err();
    assert!(matches!(&refused, OpenError::IncompleteMigration { resume, .. } if resume == &marker().resume));
    assert!(refused.to_string().contains(directory.to_str().unwrap()), "{refused}");
    let refused = StoppedStore::open(&directory).unwrap_err();
    assert!(matches!(refused, OpenError::IncompleteMigration { .. }), "{refused}");

    let found = ImportDirectory::lock(&directory).unwrap();
    assert_eq!(found.marker(), Some(&marker()));
    let mut second = found.open(&marker()).unwrap();
    assert!(second.contains("/registry/a/x") && !second.contains("/registry/a/y"));
    second.put(entry("/registry/a/y", 8, Some(far))).unwrap();
    let keys: Vec<_> = second.entries().unwrap().map(|entry| entry.unwrap().stored.key.to_string()).collect();
    assert_eq!(keys, ["/registry/a/x", "/registry/a/y"]);
    second.complete(41).unwrap();

    assert!(matches!(ImportDirectory::lock(&directory), Err(ImportError::NotEmpty(_))));
    let stopped = StoppedStore::open(&directory).unwrap();
    let expiries: Vec<_> = stopped.entries().map(|entry| entry.unwrap().expires).collect();
    assert_eq!((stopped.revision(), stopped.len(), expiries), (41, 2, vec![None, Some(far)]));
    drop(stopped);
    let store = open(&directory).await.unwrap();
    let page = store.list(ListRequest::all("/registry/")).await.unwrap();
    let found: Vec<_> = page.entries.iter().map(|entry| (entry.key.to_string(), entry.revision)).collect();
    assert_eq!(
        (store.revision(), found),
        (41, vec![("/registry/a/x".to_owned(), 7), ("/registry/a/y".to_owned(), 8)])
    );
    store.close().await;
}

#[tokio::test]
async fn directories_with_other_files_or_in_use_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("data");
    ImportDirectory::check(&directory).unwrap();
    assert!(!directory.exists());
    let held = ImportDirectory::lock(&directory).unwrap();
    assert!(matches!(ImportDirectory::lock(&directory), Err(ImportError::Open(OpenError::Locked(_)))));
    drop(held);
    std::fs::write(directory.join("notes"), "mine").unwrap();
    assert!(matches!(ImportDirectory::lock(&directory), Err(ImportError::NotEmpty(_))));
    std::fs::remove_file(directory.join("notes")).unwrap();
    open(&directory).await.unwrap().close().await;
    assert!(matches!(ImportDirectory::lock(&directory), Err(ImportError::NotEmpty(_))));
}
