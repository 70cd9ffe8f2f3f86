//! Conversions between the storage version of an object and the served versions.

pub mod admissionregistration;
pub mod autoscaling;
pub mod certificates;
pub mod events;
pub mod resource;
pub mod stored;
