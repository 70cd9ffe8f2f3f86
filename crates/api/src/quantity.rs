//! Quantity.
