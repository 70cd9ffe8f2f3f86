//! The store's tests: one suite that every backend runs, and tests specific to the embedded backend.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod crashes;
mod disk;
mod embedded;
mod etcd_process;
mod faults;
mod fixture;
mod migration;
mod quota;
mod shared;
mod suite;
