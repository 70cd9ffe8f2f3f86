//! `portcullis migrate` between the embedded store and a real etcd: equality, interruptions, refusals.
//!
//! `PORTCULLIS_ROUNDS` sets the number of kills, `PORTCULLIS_SEED` their times.
#![expect(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod kills;
mod objects;
mod refusals;
mod resume;
mod round_trip;

use std::path::Path;
use std::time::Duration;

use conformance::server::run_to_end;
use conformance::{EtcdProcess, Server};

const PATIENCE: Duration = Duration::from_mins(3);

/// Runs `portcullis migrate` and returns its exit code and output.
async fn migrate(args: &[&str]) -> (Option<i32>, String) {
    let mut all = vec!["migrate"];
    all.extend(args);
    run_to_end(&all, PATIENCE).await.unwrap()
}

/// Like [`migrate`], and expects success.
async fn migrate_succeeds(args: &[&str]) -> String {
    let (code, said) = migrate(args).await;
    assert_eq!(code, Some(0), "{said}");
    said
}

/// Like [`migrate`], and expects a failure whose error contains each of these texts.
async fn migrate_fails(args: &[&str], texts: &[&str]) -> String {
    let (code, said) = migrate(args).await;
    assert_eq!(code, Some(1), "{said}");
    let error = said.split_once("error: ").map_or("", |(_, error)| error).to_owned();
    for text in texts {
        assert!(error.contains(text), "`{text}` is missing in: {said}");
    }
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Ends a server as a service manager does, so that it gives up its leases.
async fn stop(mut server: Server) {
    server.terminate().unwrap();
    server.wait(Duration::from_mins(1)).await.unwrap();
}

/// The digest in a line that begins with `start`.
fn digest_after<'a>(said: &'a str, start: &str) -> &'a str {
    let line = said.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    line.split_once("digest ").map_or("", |(_, digest)| digest)
}

/// The flag that lets a server use this etcd.
fn on(etcd: &EtcdProcess) -> String {
    format!("--etcd-servers={}", etcd.url)
}
