//! PEM and X.509 as Go reads them.
//!
//! Whoever signs a certificate request or trusts a bundle in a Kubernetes cluster reads it with Go's `encoding/pem`,
//! `encoding/asn1` and `crypto/x509`. A check that reads the same bytes in another way can be told one thing while the signer
//! is told another, so everything in this server that decides by PEM text or by a subject reads it here: [`pem`] finds the
//! block that Go finds, [`CertificateRequest`] the subject and key that Go finds, and [`directory_string`] decodes a name as
//! Go does. Where Go passes over a part of a subject that it cannot read, this crate refuses the whole.
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
pub use name::{Subject, directory_string};
pub use request::CertificateRequest;

/// Why something is not what it should be, in Go's words where a client sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first PEM block is no certificate request, or there is no block.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    /// Not the structure of a certificate request, or not in DER.
    #[error("asn1: structure error: invalid certificate request")]
    MalformedRequest,
    /// Bytes after the structure.
    #[error("asn1: syntax error: trailing data")]
    TrailingData,
    /// A string with characters that its type does not allow.
    #[error("{0}")]
    Text(&'static str),
    /// A common name or an organization of a type that is no string. Go passes over it.
    #[error("x509: the subject has a common name or an organization that is not a string")]
    NameNotText,
    /// A public key that cannot be read.
    #[error("x509: {0}")]
    Key(&'static str),
    /// The signature is of an unknown kind, or the key is.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    UnknownAlgorithm,
    /// The signature is of a kind that proves nothing.
    #[error("x509: cannot verify signature: insecure algorithm {0}")]
    InsecureAlgorithm(&'static str),
    /// The signature is of a kind that the key cannot make.
    #[error("x509: signature algorithm specifies an {0} public key, but have public key of type {1}")]
    OtherKey(&'static str, &'static str),
    /// The signature is not the key's.
    #[error("{0}")]
    Signature(&'static str),
}

#[cfg(test)]
mod tests;
