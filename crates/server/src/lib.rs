//! The API server: TLS, HTTP, the request pipeline, handlers, controllers, metrics and configuration.
//!
//! [`start`] runs a server from a [`Config`] and returns a [`RunningServer`], in tests as well as in the binary. [`Ephemeral`] is an in-memory
//! server on a free port that starts within milliseconds. To understand the code, read [`pipeline`] first.
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

pub mod accept;
pub mod addresses;
mod admission;
mod aggregation;
pub mod audit;
mod authorities;
pub mod authorization;
pub mod body;
mod bootstrap;
pub mod browsers;
pub mod byte_budget;
pub mod call;
pub mod catalog;
pub mod client;
mod cluster;
pub mod config;
pub mod connections;
mod consistency;
mod controllers;
pub mod conversion;
mod crd_controller;
pub mod decode;
mod device_access;
pub mod discard;
mod drain;
pub mod encode;
mod endpoints;
mod ephemeral;
mod etcd_overrides;
pub mod etcd_values;
mod file_watch;
mod files;
pub mod flow_control;
mod fresh;
pub mod handlers;
pub mod health;
pub mod heavy;
pub mod identity;
mod identity_lease;
mod informer;
mod keys;
mod leadership;
mod list_watch;
mod loopback;
pub mod manifests;
pub mod metrics;
pub mod migrate;
pub mod negotiate;
pub mod offline;
pub mod options;
pub mod outbound;
pub mod ownership;
pub mod paced;
pub mod pki;
mod published;
mod random;
mod reload;
pub mod request_info;
pub mod respond;
mod restore_deleted;
mod retry_pause;
pub mod seats;
mod shutdown;
mod signer_access;
pub mod snapshot;
mod splice;
mod start;
pub mod state;
pub mod table;
pub mod tls;
pub mod tokens;
mod truncate_remote;
pub mod trust;
mod unreadable;
pub mod unsent;
pub mod version;
pub mod write;
mod write_coalescing;

pub use authorization::Authorization;
pub use config::{Config, ConfigError, Data, FollowedFiles, Redirects};
pub use endpoints::EndpointReconciler;
pub use ephemeral::Ephemeral;
pub use grpc::TlsFiles;
pub use keys::DEFAULT_ETCD_PREFIX;
pub use start::{RunningServer, start};

/// Compiles and runs the Rust blocks of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/test-a-controller-or-policy.md")]
mod test_a_controller_or_policy {}
