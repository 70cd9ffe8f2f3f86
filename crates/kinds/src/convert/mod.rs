//! Conversions between the shape an object is stored in and the shapes it is served in.

pub mod autoscaling;
pub mod events;
pub mod resource;
