//! An upgrade to another store format and back, with a snapshot.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;

use conformance::{Server, accepts};
use flate2::read::GzDecoder;
use tempfile::TempDir;

use super::{snapshot_succeeds, status, text};

/// The database does not get younger.
const LONG_EVENTS: &str = "--event-ttl=876000h";
const OBJECT: &str = "/api/v1/namespaces/demo/configmaps/a";

#[tokio::test]
async fn a_snapshot_saved_before_an_upgrade_is_restored_in_the_old_format() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    let mut bytes = Vec::new();
    let packed = include_bytes!("../security/store-format-1.redb.gz");
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    fs::write(data.join("store.redb"), &bytes).unwrap();

    // Before the upgrade: the new program saves the old store without migrating it.
    let old = home.path().join("old");
    snapshot_succeeds(&["save", text(&old), "--data-dir", text(&data)]).await;
    let before = status(&old).await;
    assert_eq!(before["storeFormat"], 1);
    assert!(!data.join("store.redb.v1").exists());

    // The upgrade migrates the store and keeps the old file.
    let mut server = Server::serve_at(home.path(), &[LONG_EVENTS]).await.unwrap();
    let client = server.client().unwrap();
    let object = accepts(client.get(OBJECT).await).unwrap();
    let new = home.path().join("new");
    fs::write(&new, super::post(&client).await.unwrap().body).unwrap();
    assert_eq!(status(&new).await["storeFormat"], 2);
    server.kill().unwrap();
    assert!(data.join("store.redb.v1").exists());

    // Back: both the preserved file and the restored one are stores of format 1 with the same content.
    let preserved = home.path().join("preserved");
    fs::DirBuilder::new().mode(0o700).create(&preserved).unwrap();
    fs::copy(data.join("store.redb.v1"), preserved.join("store.redb")).unwrap();
    let restored = home.path().join("restored");
    snapshot_succeeds(&["restore", text(&old), "--data-dir", text(&restored)]).await;
    for directory in [&preserved, &restored] {
        let file = home.path().join("again");
        snapshot_succeeds(&["save", text(&file), "--data-dir", text(directory)]).await;
        let again = status(&file).await;
        assert_eq!((&again["hash"], &again["storeFormat"]), (&before["hash"], &before["storeFormat"]));
    }

    // And forward again, from either snapshot.
    for (name, file) in [("old", &old), ("new", &new)] {
        let home = TempDir::new().unwrap();
        snapshot_succeeds(&["restore", text(file), "--data-dir", text(&home.path().join("data"))]).await;
        let server = Server::serve_at(home.path(), &[LONG_EVENTS]).await.unwrap();
        assert_eq!(accepts(server.client().unwrap().get(OBJECT).await).unwrap(), object, "{name}");
    }
}
