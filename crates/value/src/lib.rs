//! The tree of a decoded object, with readers and writers that agree with Go's.
//!
//! A decoded object is one [`Value`]: maps are vectors sorted by key ([`Map`]), strings are cheap to clone ([`Str`]), and
//! integers, unsigned integers and floats are distinct. The readers ([`json`], [`yaml`]) report repeated keys with their paths.
//! [`mod@write`] writes canonical JSON: keys sorted, byte for byte as Go's encoder writes it.
//!
//! - [`order`] writes JSON with keys in a declared order, for objects that are not stored.
//! - [`go`] is what clients see of Go's standard library: values formatted as `fmt` does, base64, addresses and URLs with Go's errors.
//! - [`names`] validates DNS names, label keys and label values, with Kubernetes' messages.
//! - [`strfmt`] has the string formats that both CRD schemas and CEL check.
//! - [`Path`] is a field path as Kubernetes prints it.
//! - [`quantity`] has Kubernetes' exact decimal numbers.
//! - [`time`] parses and prints Go's durations and RFC 3339 times.
//! - [`text`] truncates texts and percent-encodes them.
//! - [`TtlCache`] is a bounded map whose entries expire; [`ByteLru`] is bounded by the bytes of its values.
//! - [`LruCache`] is a map of bounded size that evicts the entry used longest ago.
//! - [`push_varint`] writes numbers in base 128.
//! - [`TokenBucket`] limits a rate and permits bursts.
//! - [`Budget`] limits and cancels long loops without reading a clock.
//!
//! ```
//! use value::{Value, json, write, yaml};
//!
//! let read = json::read(br#"{"kind": "Pod", "spec": {"a": 1, "a": 2}}"#).unwrap();
//! assert_eq!(read.value.int_at(&["spec", "a"]), Some(2));
//! assert_eq!(read.duplicates, ["spec.a"]);
//!
//! let mut pod = read.value;
//! pod.set_at(&["metadata", "name"], "web");
//! assert_eq!(write::to_string(&pod), r#"{"kind":"Pod","metadata":{"name":"web"},"spec":{"a":2}}"#);
//! assert_eq!(yaml::read(b"kind: Pod").unwrap().value, Value::map([("kind", "Pod")]));
//! ```

mod backoff;
mod budget;
mod byte_lru;
pub mod go;
pub mod json;
mod lru;
mod map;
pub mod names;
pub mod order;
mod path;
pub mod quantity;
pub mod steps;
pub mod strfmt;
pub mod text;
pub mod time;
mod token_bucket;
mod tree;
mod ttl_cache;
mod varint;
pub mod write;
pub mod yaml;

pub use backoff::Backoff;
pub use budget::{Budget, BudgetEnded, Meter};
pub use byte_lru::ByteLru;
pub use lru::LruCache;
pub use map::Map;
pub use path::{Path, Segment};
pub use smol_str::{SmolStr as Str, format_smolstr};
pub use token_bucket::TokenBucket;
pub use tree::Value;
pub use ttl_cache::TtlCache;
pub use varint::push_varint;

#[cfg(test)]
mod tests;
