//! Custom resources: what a `CustomResourceDefinition` says of the kind it defines, and what follows from it for its objects.
//!
//! A stored CRD is read twice. [`CustomResourceDefinition::read`] takes the few facts that routing, discovery and names need, when the
//! CRD changes; the schema of a version is compiled ([`Compiled`]) when its first object is written or read, so that
//! thousands of CRDs nobody uses cost nothing but their bytes. A schema becomes one tree of [`Node`]s; pruning,
//! defaulting, validation, rules and the facts of [`crate::schema`] all walk that tree.

pub mod columns;
mod compiled;
mod correlate;
mod crd;
mod defaults;
mod facts;
mod field_path;
mod formats;
pub mod json_path;
mod lists;
mod metadata;
pub mod names;
mod node;
mod prune;
pub mod rules;
pub mod scale;
mod stopwatch;
mod strategy;
#[cfg(test)]
mod tests;
mod validate;
mod validate_defaults;
mod verdict;

/// Finds the built-in resource whose storage directory overlaps `<group>/<plural>`: a CRD of that group and plural is refused and
/// never served. Callers pass it in, because this module does not know the built-in resources.
pub type OverlappingBuiltIn = fn(group: &str, plural: &str) -> Option<api::GroupResource>;

pub use compiled::{Compiled, Found};
pub use crd::{Conversion, CustomResourceDefinition, Names, ScalePaths, Source, Version};
pub use defaults::{Room, TooLarge};
pub use field_path::{FieldPath, field_path};
pub use formats::unrecognized as unrecognized_format;
pub use node::{Additional, Node, Rule};
pub use stopwatch::Stopwatch;
pub use strategy::Bounds;
pub use validate::defaults_are_valid;

pub(crate) use defaults::size;
pub(crate) use metadata::{default_errors as metadata_errors, resource_errors as embedded_errors};
pub(crate) use prune::without_unknown;
