//! Work on whole stores, for the command line.
//!
//! - [`snapshot`] saves a snapshot from a running server or from the store of a stopped one, verifies it, and restores it.
//! - [`migrate::migrate`] copies a store to etcd or back and verifies the copy.
//!
//! Nothing is changed in the source. [`OfflineError`] says why the store of a stopped server cannot be used.
//!
//! ```no_run
//! # fn main() -> Result<(), maintenance::snapshot::SnapshotCommandError> {
//! let summary = maintenance::snapshot::save_stopped("data".as_ref(), "backup.snapshot".as_ref())?;
//! println!("saved revision {}", summary.header.revision);
//! # Ok(())
//! # }
//! ```

pub mod migrate;
pub mod snapshot;
mod store_directory;

pub use store_directory::{OfflineError, store_directory};
