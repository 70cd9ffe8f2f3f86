//! No request is answered before static policies are active, and none is decided without them later.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use conformance::client::{Client, Credentials, Trust};
use conformance::server::{ADMIN_TOKEN, binary, free_port, write_private};
use conformance::{Server, accepts, eventually};
use serde_json::Value;
use tokio::process::Command;

use crate::folder::{Folders, MAPS, NO_ACCOUNTS, denied, map, refusing, tries};

/// The number of starts; a hundred in the full run.
fn start_count() -> usize {
    std::env::var("PORTCULLIS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_violating_object_is_created_however_early_it_is_requested() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let home = tempfile::tempdir().unwrap();
    write_private(&home.path().join("tokens.csv"), &format!("{ADMIN_TOKEN},admin,admin,system:masters\n"))
        .unwrap();
    let (port, guard) = free_port().unwrap();
    drop(guard);
    let url = format!("https://127.0.0.1:{port}");
    let client = Client::new(&url, Trust::Anything, Credentials::Token(ADMIN_TOKEN.into())).unwrap();
    let mut answered = 0;
    for round in 0..start_count() {
        let over = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicUsize::new(0));
        let created = Arc::new(AtomicUsize::new(0));
        let hammers: Vec<_> = (0..4)
            .map(|n| {
                let (client, over) = (client.clone(), Arc::clone(&over));
                let (refused, created) = (Arc::clone(&refused), Arc::clone(&created));
                tokio::spawn(async move {
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) {
                        count += 1;
                        let name = format!("bad-{round}-{n}-{count}");
                        match client.post(MAPS, &map(&name)).await {
                            Ok(answer) if answer.code == 422 => refused.fetch_add(1, Ordering::Relaxed),
                            Ok(answer) if answer.code == 201 => created.fetch_add(1, Ordering::Relaxed),
                            _ => {
                                tokio::time::sleep(Duration::from_millis(1)).await;
                                0
                            }
                        };
                    }
                })
            })
            .collect();
        let mut child = serve(home.path(), port, &folders);
        eventually(Duration::from_mins(1), async || match refused.load(Ordering::Relaxed) {
            0 => Err(conformance::Problem::new("nothing was refused yet")),
            _ => Ok(()),
        })
        .await
        .unwrap();
        // Killed during the requests; the next start uses the same store.
        child.kill().await.unwrap();
        over.store(true, Ordering::Relaxed);
        for hammer in hammers {
            hammer.await.unwrap();
        }
        assert_eq!(created.load(Ordering::Relaxed), 0, "a violating object was created in start {round}");
        answered += refused.load(Ordering::Relaxed);
    }
    assert!(answered >= start_count());
    let mut child = serve(home.path(), port, &folders);
    let list = eventually(Duration::from_mins(1), async || accepts(client.get(MAPS).await)).await.unwrap();
    let bad = |item: &&Value| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("bad"));
    assert_eq!(list["items"].as_array().unwrap().iter().filter(bad).count(), 0);
    child.kill().await.unwrap();
}

fn serve(home: &Path, port: u16, folders: &Folders) -> tokio::process::Child {
    Command::new(binary().unwrap())
        .args(["serve", "--bind-address=127.0.0.1", "--authorization-mode=RBAC", NO_ACCOUNTS])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--data-dir={}", home.join("data").display()))
        .arg(format!("--cert-dir={}", home.join("certs").display()))
        .arg(format!("--token-auth-file={}", home.join("tokens.csv").display()))
        .arg(folders.flag())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn up_loads_a_folder_with_all_kinds_and_reloads_it() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let server = Server::up_with(&["--policies", folders.policies().to_str().unwrap()]).await.unwrap();
    let client = server.client().unwrap();
    denied(tries(&client, "bad").await, "guard", "guard-binding", "no bad");
    accepts(tries(&client, "good").await).unwrap();
    folders.write("guard.yaml", &refusing("guard", "worse"));
    eventually(Duration::from_secs(20), async || accepts(tries(&client, "bad").await)).await.unwrap();
    denied(tries(&client, "worse").await, "guard", "guard-binding", "no worse");
}
