//! Quantities, re-exported from [`value::quantity`].

pub use value::quantity::{Quantity, QuantityError, QuantityFormat};
