//! The Common Expression Language with Kubernetes' libraries and costs.
//!
//! An expression passes three stages, each a type: [`Parsed`] (no syntax errors), [`Checked`] (no type errors) and [`Program`]
//! (ready to run). All three come from an [`Env`], which declares variables, functions and types. A program runs on borrowed
//! data ([`Val::data`]) and counts Kubernetes' cost units.
//!
//! ```
//! use cel::{Activation, Env, Type, Val, Version};
//!
//! let env = Env::kubernetes(Version::CURRENT).with_variables([("object", Type::Dyn)]);
//! let program = env.compile("object.spec.replicas <= 5").unwrap().program().unwrap();
//! let object = value::json::parse(br#"{"spec": {"replicas": 3}}"#).unwrap();
//! let activation = Activation::new(&env).with("object", Val::data(&object));
//! let evaluation = program.run(&activation, cel::PER_CALL_LIMIT);
//! assert_eq!(evaluation.outcome.unwrap().as_bool(), Some(true));
//! assert_eq!(evaluation.cost, 4);
//! ```
//!
//! The crate does no I/O and reads no clock. Authorization checks are decided by an [`authz::RecordedDecisions`].

#![warn(missing_docs)]

pub mod batch;
mod check;
mod cost;
mod decl;
mod deep_stack;
pub mod device;
mod env;
mod eval;
#[path = "lib/mod.rs"]
mod lib;
mod plan;
mod report;
pub mod schema;
pub mod syntax;
mod types;
mod val;

pub use cost::estimate::{EstimateRange, NoHints, SizeHints};
pub use cost::{OUT_OF_BUDGET, PER_CALL_LIMIT};
pub use env::{Checked, Env, Parsed, Program, TypeProvider, Version};
pub use eval::{Activation, Error, ErrorKind, EvalResult, Evaluation};
pub use lib::authz;
pub use lib::semver::Semver;
pub use report::{nearest, report};

/// Regular expressions in Go's syntax, for callers that match the same patterns outside of expressions.
pub mod pattern {
    pub use crate::lib::pattern::allowance::{PER_OBJECT, PatternWorkLimit, within};
    pub use crate::lib::pattern::{Pattern, PatternError};
}
pub use syntax::source::{Issue, Issues, Location, Source};
pub use syntax::token::is_reserved;
pub use types::Type;
pub use val::{
    CelTimestamp, LazyFields, ListVal, MapEntries, MapVal, ObjectVal, Text, Val, ValKind, ValueMemory,
};
