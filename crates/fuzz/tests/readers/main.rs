//! Fuzz tests of every reader of input from outside: no input panics, work and output are bounded, values survive a round trip
//! through writer and reader, and two readers of the same language agree.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod authorities;
mod configuration;
mod expressions;
mod json;
mod json_path;
mod kubeconfig;
mod objects;
mod patches;
mod protobuf;
mod requests;
mod scalars;
mod seeds;
mod selectors;
mod snapshots;
mod stored_values;
mod tokens;
mod yaml;
