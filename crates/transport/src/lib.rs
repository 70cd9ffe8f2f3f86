//! Connections from clients: TLS, HTTP, and what limits them.
//!
//! - [`accept::serve`] accepts connections and passes their requests to a [`RequestHandler`](accept::RequestHandler).
//! - [`connections`] limits the number of connections, closes idle ones when the limit is near, and closes those whose client does not
//!   read. Small responses are sent together.
//! - [`long_running`] counts the watches and other long-running requests of each account, and ends the oldest if there are too many.
//! - [`tls`] is the configuration of the listener; [`trust`] verifies client certificates against the CAs in force, by the rules in
//!   [`authorities`]; [`pki`] creates certificates.
//! - [`byte_budget::ByteBudget`] limits the bytes that the server holds for clients; [`paced::Paced`] and [`discard::Discarding`] receive
//!   request bodies; [`objects`] charges what is decoded from them.
//!
//! ```
//! use transport::{pki, tls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = 1_800_000_000; // seconds since 1970
//! let ca = pki::authority("example-ca", now)?;
//! assert_eq!(tls::certificates(ca.cert_pem.as_bytes())?.len(), 1);
//! # Ok(())
//! # }
//! ```

pub mod accept;
pub mod authorities;
pub mod byte_budget;
pub mod connections;
pub mod discard;
pub mod drain;
mod host;
pub mod long_running;
pub mod objects;
pub mod paced;
pub mod pki;
pub mod tls;
pub mod trust;
pub mod unsent;
mod write_coalescing;
