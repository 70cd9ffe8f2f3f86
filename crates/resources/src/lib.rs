//! What each kind is: table, schemas, defaults, validation, patches, printing.

pub mod defaults;
pub mod validation;

pub mod schema;
