//! Authorization chains with real webhooks over TLS, tested through the API.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "this is a test")]

mod chain;
mod deciding;
mod denied_everywhere;
mod reload;
mod reviews;
mod starting;
