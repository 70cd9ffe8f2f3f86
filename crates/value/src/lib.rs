//! The object tree everything reads.
//!
//! One decoded object is one [`Value`]: maps are vectors sorted by key, strings are cheap to clone, and integers, unsigned
//! integers and floats stay apart. The readers ([`json`], [`yaml`]) report duplicate keys with their paths; the one writer
//! ([`write`]) is canonical: keys sorted, bytes as Go's encoder writes them. What is not stored may have another [`order`], and
//! messages show values as [`go`] does. What long loops may cost is a [`Budget`].

mod budget;
pub mod go;
pub mod json;
mod map;
pub mod order;
mod path;
pub mod quantity;
pub mod steps;
mod tree;
pub mod write;
pub mod yaml;

pub use budget::{Budget, BudgetEnded, Meter};
pub use map::Map;
pub use path::{Path, Segment};
pub use smol_str::{SmolStr as Str, format_smolstr};
pub use tree::Value;

#[cfg(test)]
mod tests;
