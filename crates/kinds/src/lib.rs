//! The built-in kinds of Kubernetes 1.37: a table of resources, and for each kind its defaults, validation, strategy,
//! warnings, columns and conversions.
//!
//! [`table`] lists the kinds ([`table::Resource`]) with their groups, versions, names, scope, verbs and subresources. [`defaults`]
//! fills in absent fields, [`strategy`] prepares an object for a create or an update before validation, [`validation`] reports
//! field errors, [`warnings`] reports problems that do not reject the request, [`print`] computes the columns of `kubectl get`,
//! [`convert`] converts between versions, and [`scale`] implements the `scale` subresource. [`expressions`] declares the CEL
//! environments of admission policies, for validation here and for evaluation in `admission`.
//!
//! All functions take objects in their storage version, decoded by their schema (crate `schema`).
//!
//! ```
//! use api::GroupKind;
//!
//! let row = kinds::table::find("", "v1", "pods").unwrap();
//! assert_eq!(row.kind, "Pod");
//!
//! let text = br#"{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"nginx"}]}}"#;
//! let mut pod = value::json::parse(text).unwrap();
//! kinds::table::behavior(&GroupKind::new("", "Pod")).apply_defaults(&mut pod);
//! assert_eq!(pod.str_at(&["spec", "restartPolicy"]), Some("Always"));
//! ```

pub mod convert;
pub mod defaults;
pub mod expressions;
mod pod_containers;
pub mod print;
pub mod scale;
pub mod strategy;
pub mod table;
pub mod validation;
pub mod warnings;
