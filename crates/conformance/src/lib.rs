//! Harness and black-box suites against a running server.
//!
//! [`Server`] starts the built binary in a folder of its own and ends it when dropped; [`Client`] sends HTTPS requests to it, or to a
//! reference server; [`Hook`] is a webhook that it calls; [`EtcdProcess`] is an etcd that it uses; [`TestAuthority`] issues certificates;
//! [`accepts`] and [`rejects`] check the status of a response. [`script`] parses request scripts, [`replay`] runs them, [`normalize`]
//! removes what differs from run to run, and [`compare`] lists the remaining differences. [`load`] is the load test.
//!
//! ```no_run
//! use conformance::{Server, accepts, rejects};
//! use serde_json::json;
//!
//! # async fn example() -> conformance::Result<()> {
//! let server = Server::up().await?;
//! let client = server.client()?;
//! let settings = json!({"metadata": {"name": "settings"}, "data": {"color": "blue"}});
//! accepts(client.post("/api/v1/namespaces/default/configmaps", &settings).await)?;
//! rejects(client.post("/api/v1/namespaces/default/configmaps", &settings).await, 409, "AlreadyExists")?;
//! # Ok(())
//! # }
//! ```
//!
//! The suites expect what Kubernetes does, recorded from a real kube-apiserver, and never what this server happens to do.

pub mod aggregated_server;
pub mod client;
pub mod compare;
pub mod documentation;
pub mod etcd_process;
mod expect;
pub mod hook;
pub mod load;
pub mod normalize;
pub mod random;
pub mod replay;
pub mod script;
pub mod server;
mod serving_identity;
pub mod suite;
mod test_authority;
pub mod webhook;

pub use aggregated_server::AggregatedServer;
pub use client::{Client, Events, HttpResponse};
pub use etcd_process::EtcdProcess;
pub use expect::{accepts, eventually, rejects};
pub use hook::{Hook, HookReply, HookRequest};
pub use server::Server;
pub use test_authority::TestAuthority;
pub use webhook::WebhookServer;

/// A failure of the test harness.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Problem(String);

impl Problem {
    pub fn new(words: impl Into<String>) -> Self {
        Problem(words.into())
    }

    /// Puts the action that failed before the error.
    pub fn at(doing: &str, error: impl std::fmt::Display) -> Self {
        Problem(format!("{doing}: {error}"))
    }
}

pub type Result<T> = std::result::Result<T, Problem>;
