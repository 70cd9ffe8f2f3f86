//! The API server: TLS, HTTP, the request pipeline, handlers, controllers, metrics and configuration.
//!
//! [`start`] runs a server from a [`Config`] and returns a [`RunningServer`], in tests as well as in the binary. [`Ephemeral`] is an
//! in-memory server on a free port that starts within milliseconds. To understand the code, read [`pipeline`] first.
//!
//! ```no_run
//! # async fn run() -> Result<(), server::ConfigError> {
//! let server = server::Ephemeral::start().await?;
//! println!("{}", server.kubeconfig());
//! server.running.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod pipeline;

pub mod addresses;
mod admission;
mod aggregation;
pub mod body;
mod bootstrap;
mod bootstrap_tokens;
pub mod browsers;
pub mod call;
pub mod client;
mod cluster;
pub mod config;
mod consistency;
mod consistent_reads;
mod controllers;
pub mod conversion;
mod crd_controller;
pub mod decode;
mod device_access;
mod endpoints;
mod ephemeral;
mod etcd_overrides;
pub mod flow_control;
pub mod handlers;
pub mod health;
mod identity_lease;
mod informer;
mod leadership;
mod loopback;
pub mod manifests;
pub mod metrics;
pub mod offline;
pub mod ownership;
mod published;
mod reload;
pub mod respond;
mod restore_deleted;
pub mod seats;
mod shutdown;
mod signer_access;
mod start;
pub mod state;
pub mod table;
pub mod tokens;
pub mod write;

pub use authz_config::Authorization;
pub use catalog::keys::DEFAULT_ETCD_PREFIX;
pub use config::{Config, ConfigError, FollowedFiles, Redirects, StorageBackend};
pub use endpoints::EndpointReconciler;
pub use ephemeral::Ephemeral;
pub use grpc::TlsFiles;
pub use reload::log_token_file_warnings;
pub use start::{RunningServer, start};

/// Compiles and runs the Rust blocks of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/test-a-controller-or-policy.md")]
mod test_a_controller_or_policy {}
