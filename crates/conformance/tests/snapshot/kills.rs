//! Kills the server during a save, and the command during a restore.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use conformance::Server;
use conformance::random::{Dice, env_number};
use conformance::server::binary;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{fill, snapshot_succeeds, status, text};

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(binary().unwrap());
    command.arg("snapshot").args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().unwrap()
}

async fn hash_of_store(data: &Path, file: &Path) -> String {
    snapshot_succeeds(&["save", text(file), "--data-dir", text(data)]).await;
    status(file).await["hash"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_from_a_killed_server_keeps_the_previous_file() {
    let home = TempDir::new().unwrap();
    let folder = home.path().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("snapshot");
    let mut server = Server::up_at(home.path()).await.unwrap();
    fill(&server.client().unwrap(), 20).await;
    let kubeconfig = server.kubeconfig().unwrap();
    let started = Instant::now();
    snapshot_succeeds(&["save", text(&file), "--kubeconfig", text(&kubeconfig)]).await;
    let took = u64::try_from(started.elapsed().as_micros()).unwrap();
    let mut dice = Dice::from_env();
    let mut cut = 0;
    for round in 0..env_number("PORTCULLIS_ROUNDS", 6) {
        let before = status(&file).await;
        let mut save = start(&["save", text(&file), "--kubeconfig", text(&kubeconfig)]);
        tokio::time::sleep(Duration::from_micros(dice.roll(took))).await;
        server.kill().unwrap();
        let succeeded = save.wait().await.unwrap().success();
        let after = status(&file).await;
        if !succeeded {
            assert_eq!(after, before, "round {round}");
            cut += 1;
        }
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|name| name.unwrap().file_name()).collect();
        assert_eq!(names, ["snapshot"], "round {round}");
        server = Server::up_at(home.path()).await.unwrap();
    }
    assert!(cut > 0, "no save was interrupted");
    snapshot_succeeds(&["save", text(&file), "--kubeconfig", text(&kubeconfig)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_restore_leaves_a_complete_store_or_none() {
    let home = TempDir::new().unwrap();
    let mut server = Server::up_at(home.path()).await.unwrap();
    fill(&server.client().unwrap(), 20).await;
    server.kill().unwrap();
    let file = home.path().join("snapshot");
    let expected = hash_of_store(&server.data(), &file).await;
    let started = Instant::now();
    let first = home.path().join("first");
    snapshot_succeeds(&["restore", text(&file), "--data-dir", text(&first)]).await;
    let took = u64::try_from(started.elapsed().as_micros()).unwrap();
    assert_eq!(hash_of_store(&first, &home.path().join("again")).await, expected);
    let target = home.path().join("restored");
    let mut dice = Dice::from_env();
    let (mut complete, mut none) = (0, 0);
    for round in 0..env_number("PORTCULLIS_ROUNDS", 20) {
        let mut restore = start(&["restore", text(&file), "--data-dir", text(&target)]);
        tokio::time::sleep(Duration::from_micros(dice.roll(took))).await;
        restore.start_kill().unwrap();
        restore.wait().await.unwrap();
        if target.exists() {
            assert_eq!(hash_of_store(&target, &home.path().join("again")).await, expected, "round {round}");
            std::fs::remove_dir_all(&target).unwrap();
            complete += 1;
        } else {
            none += 1;
        }
    }
    println!("{complete} complete, {none} without a store");
    assert!(none > 0, "no restore was interrupted");
    // What interrupted ones left does no harm.
    snapshot_succeeds(&["restore", text(&file), "--data-dir", text(&target)]).await;
    assert_eq!(hash_of_store(&target, &home.path().join("again")).await, expected);
    assert!(!home.path().join(".restored.restoring").exists());
}
