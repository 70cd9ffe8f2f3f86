//! The location in which an embedded store has its file.

use std::io;

use redb::StorageBackend;

/// Contains the file of one store, and creates its replacement when needed.
pub trait StoreLocation: Send + 'static {
    type File: StorageBackend;

    /// Opens the store's file; `None` if there is none yet.
    fn open(&self) -> io::Result<Option<Self::File>>;

    /// Creates a new, empty file beside it.
    fn begin(&self) -> io::Result<Self::File>;

    /// Preserves the store's file, which is closed and of this format, under a second name that survives [`StoreLocation::replace`]. On return
    /// it is durable; files preserved earlier are not overwritten.
    fn preserve(&self, format: u32) -> io::Result<()>;

    /// Replaces the store's file with the new one, which has been synced. On return that is durable; after an earlier crash, the store's
    /// file is one of the two.
    fn replace(&self) -> io::Result<()>;
}
