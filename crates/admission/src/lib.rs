//! Mutate, then validate: the ordered chain that every write passes before it is stored.
//!
//! The chain is one list that a reader sees top to bottom ([`Chain::plugins`]); nothing registers itself. Plugins decide
//! without I/O: what they need to know of the cluster comes through [`Cluster`], which answers from memory.

pub mod account;
mod attributes;
mod chain;
mod cluster;
pub mod configuration;
pub mod expression;
mod handles;
mod in_force;
pub mod manifests;
pub mod matching;
mod meter;
mod notes;
mod patched;
mod plugin;
pub mod plugins;
pub mod policy;
mod reinvocation;
pub mod webhook;

pub use attributes::{Attributes, Operation, Seen};
pub use chain::{Chain, ChainError, PluginName, PluginSelection, Stages};
pub use cluster::{Cluster, Later, ParamError, Served};
pub use in_force::InForce;
pub use meter::{CheckError, Conditions, Linked, Meter, Phase, Rejection, Unmetered};
pub use notes::{Annotation, FromManifests, Held, Level, Notes};
pub use plugin::{Pass, Plugin, Stage};
pub use reinvocation::{Reinvocation, Rounds};

#[cfg(test)]
extern crate self as admission;
#[cfg(test)]
#[path = "../tests/cluster/mod.rs"]
mod small;
#[cfg(test)]
mod tests;
