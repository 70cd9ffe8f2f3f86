//! Quantities, re-exported from [`value::quantity`].

pub use value::quantity::{Format, Quantity, QuantityError};
