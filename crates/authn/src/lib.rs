//! Authentication: turns the credentials of a request into a [`Caller`].
//!
//! [`Evidence`] has the credentials: client certificates, headers, path and time. [`Authenticator`] tries its
//! methods in order. Outside this crate, a `Caller` can only be created for components of this process
//! ([`Caller::internal`]), so a handler that has one knows that the request was authenticated.
//!
//! This crate does no I/O and reads no clock: certificates are already verified by TLS, files arrive as text,
//! stored objects through [`tokens::BoundObjects`], and time as a value.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::SystemTime;
//!
//! use authn::{Authenticator, Evidence, HeaderLines, StaticTokens};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (tokens, _warnings) = StaticTokens::parse("tokens.csv", "31ada4fd,alice,1,devs\n")?;
//! let authenticator = Authenticator { static_tokens: Some(Arc::new(tokens)), ..Authenticator::default() };
//! let evidence = Evidence {
//!     certificate: None,
//!     proxy_certificate: None,
//!     headers: &HeaderLines(&[("Authorization", "Bearer 31ada4fd")]),
//!     path: "/api/v1/pods",
//!     now: SystemTime::now(),
//! };
//! let caller = authenticator.authenticate(&evidence).await.result?.ok_or("no credentials")?;
//! assert_eq!((caller.name().as_str(), caller.groups()), ("alice", &["devs".into(), "system:authenticated".into()][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod authenticator;
mod bearer;
mod bootstrap_tokens;
mod caller;
pub mod front_proxy;
mod headers;
pub mod impersonation;
mod observe;
mod static_tokens;
pub mod tokens;
mod user;
pub mod x509;

pub use api::identities as names;
pub use authenticator::{Anonymous, AuthenticationResult, Authenticator, Error, Evidence, TokenCaller};
pub use bearer::protocols_without_token;
pub use bootstrap_tokens::{BootstrapSecrets, BootstrapTokens, FoundBootstrapSecret};
pub use caller::{AuthenticationMethod, Caller, CallerHandle, InternalIdentity};
pub use front_proxy::{FrontProxy, comparable_header_name};
pub use headers::{HeaderLines, Headers, UnreadableHeader};
pub use observe::{OptionalObserver, TokenEvent, TokenObserver, TokenUse};
pub use static_tokens::{StaticTokens, TokenFileError, TokenFileWarning};
pub use user::{User, service_account};

#[cfg(test)]
mod tests;
