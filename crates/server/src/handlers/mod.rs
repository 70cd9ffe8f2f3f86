//! Request handlers, one file per verb. Every handler takes a [`crate::call::Call`], which exists only after its caller was authorized.

pub mod connect;
pub mod create;
pub mod delete;
pub mod documents;
pub mod evict;
pub mod get;
pub mod list;
pub mod pods;
pub mod reviews;
pub mod tokens;
pub mod update;
pub mod watch;
pub mod zpages;
