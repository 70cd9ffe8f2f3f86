//! Service-account tokens: keys, issuing, verifying, and what is published about them.
//!
//! A token is a JWT signed by the server's key. [`Issuer`] makes one of [`Claims`]; [`Verifier`] makes a user of one, after the
//! signature, the times, the audiences and the stored objects it is bound to ([`BoundObjects`]) have been checked;
//! [`TokenRequest`] decides what a client may ask for; [`discovery`] is what relying parties read.
//!
//! INVARIANT: only this module holds a private key.

mod cache;
mod claims;
pub mod discovery;
mod issue;
mod keys;
mod legacy;
mod refusal;
mod request;
mod verify;
mod webhook_request;

pub use cache::TokenCache;
pub use claims::{Bound, BoundKind, Claims, Reference};
pub use issue::Issuer;
pub use keys::{KeyError, PublicKey, SigningKey};
pub use refusal::{Refusal, RefusalCause, RefusalReason};
pub use request::{Attester, Attesting, Grant, RequestRules, TokenRequest};
pub use verify::{BoundObjects, Lookup, Verified, Verifier};

#[cfg(test)]
mod tests;
