//! Custom resources: reads, compiles and validates CustomResourceDefinitions, and prunes, defaults and validates their objects.
//!
//! A stored CRD is read twice. [`CustomResourceDefinition::read`] extracts the few facts that routing, discovery and naming need
//! whenever the CRD changes. The schema of a version is compiled ([`CompiledVersion`]) when its first object is read or written, so that
//! thousands of unused CRDs cost only their bytes. Compilation turns a schema into a tree of [`SchemaNode`]s, which pruning, defaulting,
//! validation, CEL rules and the conversion to [`schema`] all use. [`validation`] validates CRDs themselves.
//!
//! ```
//! use std::sync::Arc;
//! use value::Value;
//!
//! #[derive(Debug)]
//! struct Stored(Value);
//!
//! impl crd::CrdSource for Stored {
//!     fn load(&self) -> Option<Value> {
//!         Some(self.0.clone())
//!     }
//! }
//!
//! let object = value::yaml::body(
//!     br"
//! metadata: {name: things.example.com}
//! spec:
//!   group: example.com
//!   names: {plural: things, kind: Thing}
//!   versions:
//!   - name: v1
//!     schema:
//!       openAPIV3Schema:
//!         type: object
//!         properties:
//!           replicas: {type: integer, maximum: 3}
//! status:
//!   acceptedNames: {plural: things, kind: Thing}
//! ",
//! )
//! .unwrap()
//! .value;
//! let source: Arc<dyn crd::CrdSource> = Arc::new(Stored(object.clone()));
//! let crd = crd::CustomResourceDefinition::read(&object, &source, |_, _| None);
//! let text = br#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"replicas":4}"#;
//! let thing = value::json::parse(text).unwrap();
//! let found = crd.versions[0].compiled().validate_create(&thing, crd::ValidationBounds::NONE);
//! let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
//! assert_eq!(errors, ["replicas: Invalid value: 4: replicas in body should be less than or equal to 3"]);
//! ```

pub mod columns;
mod compiled;
mod correlate;
mod crd;
mod defaults;
mod field_path;
mod formats;
pub mod json_path;
mod lists;
mod metadata;
pub mod names;
mod node;
mod prune;
mod prune_defaults;
pub mod rules;
pub mod scale;
mod stopwatch;
mod strategy;
#[cfg(test)]
mod tests;
mod typed_schema;
mod validate;
pub mod validation;
mod validation_result;

/// Finds the built-in resource whose storage directory overlaps `<group>/<plural>`. A CRD with such a group and plural is rejected and
/// never served. Callers pass this function in because this crate does not know the built-in resources.
pub type OverlappingBuiltIn = fn(group: &str, plural: &str) -> Option<api::GroupResource>;

pub use compiled::{CompiledVersion, ValidationFindings};
pub use crd::{CrdConversion, CrdNames, CrdSource, CrdVersion, CustomResourceDefinition, ScalePaths};
pub use defaults::{DefaultsAllowance, TooLarge};
pub use field_path::{FieldPath, field_path};
pub use formats::unrecognized as unrecognized_format;
pub use node::{Additional, SchemaNode, ValidationRule};
pub use stopwatch::Stopwatch;
pub use strategy::ValidationBounds;
pub use validate::defaults_are_valid;

pub(crate) use defaults::size;
pub(crate) use metadata::{default_errors as metadata_errors, resource_errors as embedded_errors};
pub(crate) use prune::without_unknown;
