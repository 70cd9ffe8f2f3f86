//! What each kind is: table, schemas, defaults, validation, patches, printing.

pub mod defaults;
pub mod validation;

pub mod decode;
pub mod discovery;
pub mod patch;
pub mod schema;
pub mod table;
