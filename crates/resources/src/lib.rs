//! What each kind is: table, schemas, defaults, validation, patches, printing.

pub mod apply;
pub mod convert;
pub mod custom;
pub mod defaults;
pub mod scale;
pub mod strategy;
pub mod validation;
pub mod warnings;

pub mod decode;
pub mod discovery;
pub mod expressions;
pub mod openapi;
pub mod patch;
pub mod print;
pub mod protobuf;
pub mod schema;
pub mod table;
