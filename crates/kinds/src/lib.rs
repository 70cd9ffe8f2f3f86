//! The built-in kinds of Kubernetes 1.37: one table, and for each kind its defaults, validation, strategy, warnings, columns and
//! conversions between versions.
//!
//! [`table`] lists the kinds ([`table::Resource`]) with their groups, versions, names, scope, verbs and subresources.
//! [`defaults`] fills in absent fields, [`strategy`] says what a create or an update does to an object before admission,
//! [`validation`] reports field errors, [`warnings`] what is accepted with a warning, [`print`] what `kubectl get` shows, [`convert`]
//! changes versions, and [`scale`] is the `scale` subresource. [`expressions`] declares what CEL expressions of admission policies may
//! use, for validation here and for evaluation in `admission`.
//!
//! Everything works on objects in the version they are stored in, decoded by their schema (crate `schema`).
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
pub mod print;
pub mod scale;
pub mod strategy;
pub mod table;
pub mod validation;
pub mod warnings;
