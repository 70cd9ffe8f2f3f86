//! Attacks on the built binary over HTTPS. Every test fails on a server without the defence.

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
mod callers;
mod certificates;
mod collections;
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
mod node_restriction;
mod owners;
mod paths;
mod patterns;
mod schema_work;
mod selectors;
mod shared_budgets;
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
mod unserved_built_in_versions;
mod unserved_versions;
mod watch_forms;
mod webhook_answers;
