//! Parses PEM and X.509 exactly as Go does.
//!
//! Signers and API servers in a Kubernetes cluster use Go's `encoding/pem`, `encoding/asn1` and `crypto/x509`. If a check read
//! the same bytes differently, it could approve one subject while the signer certifies another. Everything in this server that
//! decides by PEM text, a subject or a public key therefore uses this crate: [`pem`] finds the block that Go finds,
//! [`CertificateRequest`] and [`Certificate`] have the subject and key that Go reads, and [`directory_string`] decodes names as
//! Go does. One deviation is deliberate: where Go ignores a part of a subject that it cannot read, this crate refuses the request.
//!
//! ```
//! let text = b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
//! let (block, rest) = x509::pem::decode(text).ok_or("no block")?;
//! assert_eq!((block.label.as_str(), block.bytes.as_slice()), ("CERTIFICATE REQUEST", [0x30, 0].as_slice()));
//! assert!(rest.is_empty());
//! # Ok::<(), &str>(())
//! ```

mod certificate;
mod der;
mod key;
mod name;
pub mod pem;
mod request;
mod signature;

pub use certificate::Certificate;
pub use key::{Curve, PublicKey};
pub use name::{CertificateSubject, directory_string};
pub use request::CertificateRequest;

/// Errors of parsing and verification, in Go's words where a client sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first PEM block is not a certificate request, or there is no block.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    /// The request is not valid DER or has the wrong structure.
    #[error("asn1: structure error: invalid certificate request")]
    MalformedRequest,
    /// The structure is followed by more bytes.
    #[error("asn1: syntax error: trailing data")]
    TrailingData,
    /// A string has characters that its type does not allow.
    #[error("{0}")]
    Text(&'static str),
    /// A common name or organization is not of a string type. Go ignores such a value.
    #[error("x509: the subject has a common name or an organization that is not a string")]
    NameNotText,
    /// The public key cannot be parsed.
    #[error("x509: {0}")]
    Key(&'static str),
    /// The algorithm of the signature or the key is unknown.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    UnknownAlgorithm,
    /// The signature algorithm is insecure.
    #[error("x509: cannot verify signature: insecure algorithm {0}")]
    InsecureAlgorithm(&'static str),
    /// The signature algorithm does not match the key type.
    #[error("x509: signature algorithm specifies an {0} public key, but have public key of type {1}")]
    OtherKey(&'static str, &'static str),
    /// The signature does not verify with the key.
    #[error("{0}")]
    Signature(&'static str),
}

#[cfg(test)]
mod tests;
