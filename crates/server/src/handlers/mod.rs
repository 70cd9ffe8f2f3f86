//! What each verb does, one file each. Every handler takes a [`crate::call::Call`], which only exists once its caller has
//! been authorized.

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
