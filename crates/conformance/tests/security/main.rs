//! Attacks on the built binary over HTTPS. Every test fails on a server without the defense.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod audit_padding;
mod authorities;
mod bindings;
mod bodies;
mod bootstrap_denied;
mod bootstrap_tokens;
mod broken_rows;
mod built_in_group_versions;
mod callers;
mod certificates;
mod closed_windows;
mod collections;
mod controller_leases;
mod crd_names;
mod crd_versions;
mod deadlines;
mod decoded_objects;
mod defaults;
mod descriptors;
mod device_selectors;
mod early_answers;
mod evictions;
mod hang_ups;
mod heavy_lane;
mod identity_headers;
mod large_answers;
mod large_bodies;
mod log_lines;
mod manifest_folders;
mod metric_labels;
mod named_creates;
mod namespace_work;
mod node_restriction;
mod owners;
mod pairwise_work;
mod paths;
mod patterns;
mod reserved_apiservices;
mod schema_work;
mod selectors;
mod shared_budgets;
mod storage_defaults;
mod storage_keys;
mod storage_migration;
mod store_command;
mod store_quota;
mod stored_parameters;
mod subresources;
mod tables;
mod targets;
mod unauthenticated_work;
mod unread_answers;
mod unreadable_objects;
mod unserved_built_in_versions;
mod unserved_versions;
mod validation_work;
mod watch_forms;
mod webhook_answers;

use std::time::{Duration, Instant};

use conformance::{Client, accepts};

/// The longest that a small request may take while the server does other work: far more than on a server that is busy, but not stalled, even
/// in a debug build on a machine that is busy with other work too. Measures the server, which must do nothing else meanwhile.
async fn latency_limit(client: &Client) -> Duration {
    let mut quiet = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        accepts(client.get("/livez").await).unwrap();
        quiet.push(begun.elapsed());
    }
    quiet.sort();
    Duration::from_secs(2) + 5 * quiet[quiet.len() / 2]
}

/// Polls `/livez` on a connection of its own until `work` ends. A server that stops answering fails the test, and so does one that takes longer
/// than [`latency_limit`] to answer.
async fn while_alive<T>(client: &Client, work: impl Future<Output = T>) -> T {
    let other = client.on_new_connection();
    let limit = latency_limit(&other).await;
    let mut longest = Duration::ZERO;
    let alive = async {
        loop {
            let begun = Instant::now();
            let answer = tokio::time::timeout(limit, other.get("/livez")).await;
            accepts(answer.unwrap_or_else(|_| panic!("/livez does not answer within {limit:?}"))).unwrap();
            longest = longest.max(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let done = tokio::select! {
        done = work => done,
        () = alive => panic!("polling ended"),
    };
    eprintln!("/livez took at most {longest:?} of {limit:?}");
    done
}
