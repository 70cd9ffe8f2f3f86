//! Request handlers: a file per verb, and one for each kind of request that is no verb on an object (documents, reviews, tokens, eviction,
//! connections to pods). Every handler takes a [`crate::call::Call`], which exists only after its caller was authorized.

pub mod connect;
pub mod create;
pub mod delete;
pub mod documents;
pub mod evict;
pub mod get;
pub mod list;
pub mod pods;
pub mod reviews;
pub mod snapshot;
pub mod tokens;
pub mod update;
pub mod watch;
pub mod zpages;

#[cfg(test)]
mod tests;
