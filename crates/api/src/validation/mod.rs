//! Validation that all kinds share, built-in and custom: object metadata, label selectors, conditions, webhook clients.
//!
//! [`fields`] reads fields and reports errors at field paths, [`meta`] has the rules for `metadata`, and [`repeated`] finds
//! duplicates in long lists in one pass.

pub mod fields;
pub mod meta;
pub mod repeated;
pub mod webhook_client;
