//! The store's tests: one suite that every backend runs, and tests specific to the embedded backend.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod crashes;
mod disk;
mod embedded;
mod faults;
mod fixture;
mod import;
mod migration;
mod overrides;
mod quota;
#[macro_use]
mod reopen;
mod shared;
mod snapshot;
#[macro_use]
mod suite;

use storage::Memory;
use storage::shared_memory::SharedMemory;

fn embedded() -> (tempfile::TempDir, storage::Embedded) {
    let directory = tempfile::tempdir().unwrap();
    let backend = storage::Embedded::at(directory.path().join("store"));
    (directory, backend)
}

every_backend! {
    memory: Some(((), Memory::new()));
    embedded_directory: Some(embedded());
    shared_service: Some(((), SharedMemory::new().backend()));
}

fn reopened_directory() -> (tempfile::TempDir, impl Fn() -> storage::Embedded) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    (directory, move || storage::Embedded::at(path.clone()))
}

fn reopened_service() -> ((), impl Fn() -> storage::shared_memory::SharedMemoryBackend) {
    let service = SharedMemory::new();
    ((), move || service.backend())
}

every_reopened_backend! {
    reopened_embedded_directory: Some(reopened_directory());
    reopened_shared_service: Some(reopened_service());
}
