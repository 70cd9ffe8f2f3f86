//! The Kubernetes object model: group, version and kind, metadata, names, selectors, times and errors.
//!
//! - [`GroupVersionKind`] and [`GroupResource`] identify kinds and resources; [`meta`] reads and writes `metadata`.
//! - [`selector`] has label and field selectors, and the compact facts of an object that they are matched against.
//! - [`names`] validates names, labels, ports and addresses; [`FieldError`] is a validation error of one field.
//! - [`event`] builds Events.
//! - [`Status`] is the error that a client sees, with Kubernetes' code, reason, message and details.
//!
//! ```
//! use api::selector::LabelSelector;
//! use api::{FieldError, GroupKind, Status, meta};
//!
//! let pod = value::json::parse(br#"{"kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}}"#).unwrap();
//! assert_eq!(meta::name(&pod), "web");
//! assert!(LabelSelector::parse("app in (web, db),!canary").unwrap().matches_object(&pod));
//!
//! let path = value::Path::root().field("spec").field("containers");
//! let status = Status::invalid(&GroupKind::new("", "Pod"), "web", &[FieldError::required(&path, "")]);
//! assert_eq!((status.code(), status.reason()), (422, "Invalid"));
//! assert_eq!(status.message(), r#"Pod "web" is invalid: spec.containers: Required value"#);
//! ```

pub mod admin_access;
pub mod attestation;
pub mod bootstrap_token;
pub mod event;
pub mod features;
pub mod field;
pub mod field_errors;
pub mod finalizers;
pub mod groups;
pub mod gvk;
pub mod identities;
pub mod labels;
pub mod meta;
pub mod names;
pub mod namespaces;
pub mod non_resource_urls;
pub mod order;
pub mod pod_resources;
pub mod quantity;
pub mod scale;
pub mod selector;
pub mod service_cidr;
pub mod signers;
mod status;
pub mod time;
pub mod type_meta;
pub mod validation;

pub use field::{FieldError, FieldErrors};
pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind};
pub use status::{Status, StatusCause, StatusDetails, StatusReason};
