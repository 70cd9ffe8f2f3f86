//! Where an embedded store keeps its file.

use std::io;

use redb::StorageBackend;

/// Holds the file of one store, and makes a new one beside it when need be.
pub trait Place: Send + 'static {
    /// A file.
    type File: StorageBackend;

    /// Opens the store's file; `None` if there is none yet.
    fn open(&self) -> io::Result<Option<Self::File>>;

    /// Begins a new, empty file beside it.
    fn begin(&self) -> io::Result<Self::File>;

    /// Keeps the store's file, which is closed and of this format, under a second name, so that [`Place::replace`] leaves it
    /// there. When it returns, that survives a crash; what was kept before stays, too.
    fn preserve(&self, format: u32) -> io::Result<()>;

    /// Makes the file that was begun, and has been synced, the store's file. When it returns, that survives a crash;
    /// if there is a crash before, one of the two files is the store's.
    fn replace(&self) -> io::Result<()>;
}
