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

use std::time::Duration;

use conformance::{Client, accepts};

/// Polls `/livez` on a connection of its own until `work` ends. A server that stops answering fails the test.
async fn while_alive<T>(client: &Client, work: impl Future<Output = T>) -> T {
    let other = client.on_new_connection();
    let alive = async {
        loop {
            let answer = tokio::time::timeout(Duration::from_secs(30), other.get("/livez")).await;
            accepts(answer.expect("/livez does not answer")).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = alive => panic!("polling ended"),
    }
}
