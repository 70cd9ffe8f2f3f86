//! Mutate, then validate: the ordered chain that every write passes before it is stored.
//!
//! The chain is one list that a reader sees top to bottom ([`Chain::plugins`]); nothing registers itself. Plugins decide
//! without I/O: what they need to know of the cluster comes through [`Cluster`], which answers from memory.

mod attributes;
mod chain;
mod namespace_lifecycle;

pub use attributes::{Attributes, Operation};
pub use chain::{Chain, ChainError, Cluster, Plugin, PluginName};
pub use namespace_lifecycle::NamespaceLifecycle;

#[cfg(test)]
mod tests;
