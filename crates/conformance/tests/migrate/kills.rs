//! Kills the command at random moments: the source stays as it was, no server starts from an incomplete target, and the same command
//! resumes.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use conformance::random::{Dice, env_number};
use conformance::server::{binary, run_to_end};
use conformance::{Client, EtcdProcess, Server, accepts};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{PATIENCE, digest_after, migrate_succeeds, on, stop, text};

/// Many, so that copying takes much of the time.
const OBJECTS: usize = 400;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(binary().unwrap());
    command.arg("migrate").args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().unwrap()
}

async fn fill(client: &Client) {
    for number in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"x": "x".repeat(20_000)}});
        accepts(client.post("/api/v1/namespaces/default/configmaps", &map).await).unwrap();
    }
}

/// Kills the command at a random moment of `took`.
async fn kill_at_random(args: &[&str], took: Duration, dice: &mut Dice) {
    let mut running = start(args);
    let moment = dice.roll(u64::try_from(took.as_micros()).unwrap());
    tokio::time::sleep(Duration::from_micros(moment)).await;
    running.start_kill().unwrap();
    running.wait().await.unwrap();
}

/// Expects that a server does not start from this store, and says how to complete it.
async fn assert_refused(folder: &Path, flags: &[&str]) {
    let said = match Server::serve_at(folder, flags).await {
        Ok(_) => "it started".to_owned(),
        Err(problem) => problem.to_string(),
    };
    assert!(said.contains("incomplete copy") && said.contains("portcullis migrate --from-"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_migration_to_etcd_is_resumed_and_never_served() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    fill(&server.client().unwrap()).await;
    let data = server.data();
    stop(server).await;
    let args = ["--from-data-dir", text(&data), "--to-etcd-servers", &etcd.url, "--advance-revision"];
    let started = Instant::now();
    let said = migrate_succeeds(&args).await;
    let took = started.elapsed();
    let digest = digest_after(&said, "verified:").to_owned();

    let mut dice = Dice::from_env();
    let (mut partly, mut refused) = (0, 0);
    for round in 0..env_number("PORTCULLIS_ROUNDS", 8) {
        if round % 4 == 0 {
            etcd.delete_prefix("/registry/").await.unwrap();
            etcd.delete_prefix("portcullis-migration").await.unwrap();
        }
        kill_at_random(&args, took, &mut dice).await;
        if etcd.list("portcullis-migration:").await.unwrap().is_empty() {
            // Before the first key, or after the last check.
            let keys = etcd.list("/registry/").await.unwrap().len();
            assert!(keys == 0 || keys >= OBJECTS, "round {round}: {keys} keys without a marker");
            if keys > 0 {
                etcd.delete_prefix("/registry/").await.unwrap();
            }
            continue;
        }
        partly += 1;
        if refused < 2 {
            let folder = TempDir::new().unwrap();
            assert_refused(folder.path(), &[&on(&etcd)]).await;
            refused += 1;
        }
    }
    assert!(partly > 0, "no migration was interrupted");
    let said = migrate_succeeds(&args).await;
    assert_eq!(digest_after(&said, "verified:"), digest);
    let server = Server::serve(&[&on(&etcd)]).await.unwrap();
    let maps = server.client().unwrap().get("/api/v1/namespaces/default/configmaps").await;
    let count = accepts(maps).unwrap()["items"].as_array().unwrap().len();
    assert!(count >= OBJECTS, "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_migration_to_a_directory_is_resumed_and_never_served() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let server = Server::serve(&[&on(&etcd)]).await.unwrap();
    fill(&server.client().unwrap()).await;
    stop(server).await;
    let home = TempDir::new().unwrap();
    let first = home.path().join("first");
    let started = Instant::now();
    let said = migrate_succeeds(&["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&first)]).await;
    let took = started.elapsed();
    let digest = digest_after(&said, "verified:").to_owned();

    let folder = home.path().join("target");
    let data = folder.join("data");
    let args = ["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&data)];
    let mut dice = Dice::from_env();
    let (mut incomplete, mut resumed) = (0, 0);
    for round in 0..env_number("PORTCULLIS_ROUNDS", 12) {
        kill_at_random(&args, took, &mut dice).await;
        if !data.join("store.redb").exists() {
            continue;
        }
        let (code, said) =
            run_to_end(&["store", "check", "--data-dir", text(&data)], PATIENCE).await.unwrap();
        if code == Some(0) {
            // It was killed after the last step.
            std::fs::remove_dir_all(&data).unwrap();
            continue;
        }
        assert!(said.contains("incomplete copy"), "round {round}: {said}");
        incomplete += 1;
        if incomplete % 3 == 0 {
            assert_refused(&folder, &[]).await;
            let said = migrate_succeeds(&args).await;
            assert!(said.contains("resuming"), "{said}");
            assert_eq!(digest_after(&said, "verified:"), digest, "round {round}");
            std::fs::remove_dir_all(&data).unwrap();
            resumed += 1;
        }
    }
    println!("{incomplete} incomplete, {resumed} resumed");
    assert!(incomplete > 0, "no migration was interrupted");
    let said = migrate_succeeds(&args).await;
    assert_eq!(digest_after(&said, "verified:"), digest);
    let server = Server::serve_at(&folder, &[]).await.unwrap();
    let maps = server.client().unwrap().get("/api/v1/namespaces/default/configmaps").await;
    let count = accepts(maps).unwrap()["items"].as_array().unwrap().len();
    assert!(count >= OBJECTS, "{count}");
}
