//! Where redb keeps its bytes, and whether a sync of them has failed.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, Builder, Database, DatabaseError, StorageBackend};

use crate::error::OpenError;

use super::folder::Folder;

/// Reads come from the working set, so redb's cache holds little more than what one transaction touches.
const CACHE: usize = 8 << 20;

/// What to open, as often as needed.
pub(super) struct Medium {
    source: Source,
    sync_failed: Arc<AtomicBool>,
}

type Opener = Box<dyn Fn(&Builder, Arc<AtomicBool>) -> Result<Database, DatabaseError> + Send>;

enum Source {
    /// A folder that has not been taken hold of yet.
    Path(PathBuf),
    Folder(Folder),
    Other(Opener),
}

impl Medium {
    pub(super) fn folder(path: &Path) -> Medium {
        Medium { source: Source::Path(path.to_owned()), sync_failed: Arc::default() }
    }

    pub(super) fn other<B: StorageBackend>(open: impl Fn() -> io::Result<B> + Send + 'static) -> Medium {
        let opener: Opener = Box::new(move |builder, sync_failed| {
            builder.create_with_backend(Disk { inner: open()?, sync_failed })
        });
        Medium { source: Source::Other(opener), sync_failed: Arc::default() }
    }

    /// Takes hold of the folder, if it is one.
    pub(super) fn hold(&mut self) -> Result<(), OpenError> {
        if let Source::Path(path) = &self.source {
            self.source = Source::Folder(Folder::hold(path)?);
        }
        Ok(())
    }

    /// The name of the file, for messages.
    pub(super) fn path(&self) -> PathBuf {
        match &self.source {
            Source::Path(path) => path.clone(),
            Source::Folder(folder) => folder.file_path(),
            Source::Other(_) => PathBuf::from("(not a file)"),
        }
    }

    /// Opens the file. Once it is ours, [`Medium::settle`] is to be called.
    pub(super) fn open(&self) -> Result<Database, DatabaseError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE);
        let sync_failed = Arc::clone(&self.sync_failed);
        match &self.source {
            Source::Path(_) => Err(io::Error::from(io::ErrorKind::NotFound).into()),
            Source::Folder(folder) => {
                builder.create_with_backend(Disk { inner: FileBackend::new(folder.file()?)?, sync_failed })
            }
            Source::Other(open) => open(&builder, sync_failed),
        }
    }

    /// A new file gets its name only now that it is complete: a crash while it is made leaves nothing behind.
    pub(super) fn settle(&self) -> io::Result<()> {
        if let Source::Folder(folder) = &self.source { folder.settle() } else { Ok(()) }
    }

    /// Whether a sync has failed since this was set back. The system may then take pages for written that are not.
    pub(super) fn has_sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }

    /// Everything has been written anew.
    pub(super) fn forgive(&self) {
        self.sync_failed.store(false, Ordering::Release);
    }
}

/// A backend that remembers that a sync has failed.
struct Disk<B> {
    inner: B,
    sync_failed: Arc<AtomicBool>,
}

impl<B> fmt::Debug for Disk<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl<B: StorageBackend> StorageBackend for Disk<B> {
    fn len(&self) -> Result<u64, io::Error> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.inner.sync_data().inspect_err(|_| self.sync_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
