//! What admission needs of the server: counters, and what keeps its stages at what is stored.

pub(crate) mod follow;
pub(crate) mod meter;
mod summary;
