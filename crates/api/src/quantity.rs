//! Quantities: see [`value::quantity`], where they live so that CEL can use them too.

pub use value::quantity::{Format, Quantity, QuantityError};
