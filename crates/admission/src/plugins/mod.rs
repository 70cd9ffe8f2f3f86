//! The built-in plugins, one file each. [`crate::Chain`] says which are on and in which order they run.

mod namespace_lifecycle;

pub use namespace_lifecycle::NamespaceLifecycle;
