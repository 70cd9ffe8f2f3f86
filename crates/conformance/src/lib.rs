//! Harness and black-box suites against a running server.
//!
//! [`Server`] starts the built binary in a folder of its own and ends it when dropped; [`Client`] talks HTTPS to it, or to a
//! reference; [`Hook`] is a webhook it may ask; [`accepts`] and [`rejects`] say what is expected of an answer. [`script`] are request scripts as data, [`replay`]
//! runs them, [`normalise`] removes what differs from run to run, and [`compare`] says what differs still. [`load`] is the load
//! run.
//!
//! What the suites expect is what Kubernetes does, recorded from a real kube-apiserver; never what this server happens to do.

pub mod client;
pub mod compare;
pub mod documentation;
mod expect;
pub mod extension;
pub mod hook;
pub mod load;
pub mod normalise;
pub mod replay;
pub mod script;
pub mod server;
pub mod suite;
pub mod webhook;

pub use client::{Client, Events, HttpResponse};
pub use expect::{accepts, eventually, rejects};
pub use extension::Extension;
pub use hook::{Hook, HookReply, HookRequest};
pub use server::Server;
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
