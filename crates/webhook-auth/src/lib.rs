//! Authenticates the API servers that call your Kubernetes admission webhook, as described in KEP-6060.
//!
//! The core ([`Verifier`]) does no I/O: a token, a time and a request go in, a decision comes out. Around it,
//! each behind a feature: fetching and rotating keys (`keys`, `https`), a tower layer (`tower`), an axum
//! extractor (`axum`), and for aggregated API servers obtaining and renewing tokens (`tokens`, `client`).
#![cfg_attr(all(feature = "axum", feature = "https"), doc = "")]
#![cfg_attr(all(feature = "axum", feature = "https"), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

pub mod verify;

#[cfg(feature = "client")]
pub mod client;
mod count;
#[cfg(feature = "axum")]
pub mod extract;
#[cfg(feature = "https")]
pub mod https;
#[cfg(feature = "keys")]
pub mod keys;
#[cfg(feature = "tower")]
pub mod layer;
#[cfg(feature = "tokens")]
pub mod tokens;

pub use count::{Counts, Mode, UnknownMode};
pub use verify::{
    AdmissionRequest, ClientConfig, ConfigurationKind, Expected, Identity, KeySet, Keys, Reason, Rejection,
    Verified, Verifier,
};

/// A boxed future, so that traits that return it can be used as objects.
#[cfg(any(feature = "keys", feature = "tokens"))]
pub type Pending<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
