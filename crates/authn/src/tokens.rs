//! Service account tokens: keys, issuing, verification, and OpenID discovery.
//!
//! A token is a JWT. [`Issuer`] signs [`TokenClaims`]. [`TokenVerifier`] checks signature, times, audiences
//! and the stored objects that a token is bound to ([`BoundObjects`]), and returns its user. [`TokenRequest`]
//! decides which tokens a client may request. [`discovery`] has the documents for relying parties.
//!
//! INVARIANT: only this module holds the private keys that sign tokens.

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

pub use cache::VerifiedTokenCache;
pub use claims::{BoundKind, BoundObject, ObjectReference, TokenClaims};
pub use issue::Issuer;
pub use keys::{SigningKey, TokenKeyError, TokenVerificationKey};
pub use refusal::{RefusalCause, RefusalReason, TokenRequestRefusal};
pub use request::{AttestFuture, Attester, RequestRules, TokenGrant, TokenRequest};
pub use verify::{BoundObjects, LookupFuture, TokenVerifier, VerifiedToken};

#[cfg(test)]
mod tests;
