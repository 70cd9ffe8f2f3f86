//! Who is calling.
//!
//! A request brings [`Evidence`]: the certificate its connection proved, its headers, its path and the time. The
//! [`Authenticator`], one ordered list, makes a [`Caller`] of it, or nothing, or an error. Nothing else makes a `Caller`, so a
//! handler that has one knows that somebody checked.
//!
//! No I/O and no clock in here: certificates arrive as bytes that TLS has verified, files as text, stored objects through
//! [`tokens::BoundObjects`], time as a value.

mod authenticator;
mod bearer;
mod caller;
mod front_proxy;
mod headers;
pub mod impersonation;
mod observe;
mod static_tokens;
pub mod tokens;
mod user;
pub mod x509;

pub use authenticator::{Anonymous, Attempt, Authenticator, Error, Evidence, TokenCaller};
pub use bearer::protocols_without_token;
pub use caller::{Caller, InternalIdentity, Via};
pub use front_proxy::{FrontProxy, comparable_header_name};
pub use headers::{HeaderLines, Headers, UnreadableHeader};
pub use observe::{Observed, Observer, TokenEvent, TokenUse};
pub use static_tokens::{StaticTokens, TokenFileError, TokenFileWarning};
pub use user::{User, names, service_account};

#[cfg(test)]
mod tests;
