//! The storage below redb, and whether one of its syncs has failed.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::{BackendError, Builder, Database, DatabaseError, StorageBackend};

use crate::error::OpenError;

use super::directory::DataDirectory;
use super::location::StoreLocation;

/// Reads come from the working set, so redb's cache holds little more than the pages of one transaction.
const CACHE: usize = 8 << 20;

/// The location of the file; it can be opened repeatedly.
pub(super) struct Medium {
    source: MediumSource,
    file_status: Arc<FileStatus>,
}

/// State of the file that is known without a system call.
#[derive(Default)]
pub(super) struct FileStatus {
    sync_failed: AtomicBool,
    length: AtomicU64,
}

impl FileStatus {
    /// Length of the file in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }
}

enum MediumSource {
    /// A directory that is not locked yet.
    Path(PathBuf),
    /// An opened location, and the path of its file for messages.
    StoreLocation(Box<dyn Databases>, PathBuf),
}

impl Medium {
    pub(super) fn directory(path: &Path) -> Medium {
        Medium { source: MediumSource::Path(path.to_owned()), file_status: Arc::default() }
    }

    pub(super) fn at(location: impl StoreLocation) -> Medium {
        let source = MediumSource::StoreLocation(Box::new(location), PathBuf::from("(not a file)"));
        Medium { source, file_status: Arc::default() }
    }

    /// The state of the file, valid as long as the file is used.
    pub(super) fn file_status(&self) -> Arc<FileStatus> {
        Arc::clone(&self.file_status)
    }

    /// Locks the directory, if the source is a directory.
    pub(super) fn lock(&mut self) -> Result<(), OpenError> {
        if let MediumSource::Path(path) = &self.source {
            let directory = DataDirectory::lock(path)?;
            let file = directory.file_path();
            self.source = MediumSource::StoreLocation(Box::new(directory), file);
        }
        Ok(())
    }

    /// The path of the file, for messages.
    pub(super) fn path(&self) -> PathBuf {
        match &self.source {
            MediumSource::Path(path) | MediumSource::StoreLocation(_, path) => path.clone(),
        }
    }

    /// Opens the file; `None` if it does not exist.
    pub(super) fn open(&self) -> Result<Option<Database>, DatabaseError> {
        self.databases()?.open(&self.file_status)
    }

    /// Creates a new file beside the current one.
    pub(super) fn begin(&self) -> Result<Database, DatabaseError> {
        self.databases()?.begin(&self.file_status)
    }

    /// Preserves the file under a second name that contains its format.
    pub(super) fn preserve(&self, format: u32) -> io::Result<()> {
        self.databases()?.preserve(format)
    }

    /// Replaces the current file with the new one.
    pub(super) fn replace(&self) -> io::Result<()> {
        self.databases()?.replace()?;
        self.file_status.sync_failed.store(false, Ordering::Release);
        Ok(())
    }

    /// Reports whether a sync of the file has failed. The kernel may then consider unwritten pages clean, so the content of the
    /// file cannot be trusted after the next crash.
    pub(super) fn has_sync_failed(&self) -> bool {
        self.file_status.sync_failed.load(Ordering::Acquire)
    }

    fn databases(&self) -> io::Result<&dyn Databases> {
        match &self.source {
            MediumSource::Path(_) => Err(io::Error::other("the data directory is not locked")),
            MediumSource::StoreLocation(databases, _) => Ok(&**databases),
        }
    }
}

/// A [`StoreLocation`] whose files are opened as redb databases.
trait Databases: Send {
    fn open(&self, file_status: &Arc<FileStatus>) -> Result<Option<Database>, DatabaseError>;
    fn begin(&self, file_status: &Arc<FileStatus>) -> Result<Database, DatabaseError>;
    fn preserve(&self, format: u32) -> io::Result<()>;
    fn replace(&self) -> io::Result<()>;
}

impl<P: StoreLocation> Databases for P {
    fn open(&self, file_status: &Arc<FileStatus>) -> Result<Option<Database>, DatabaseError> {
        StoreLocation::open(self)?.map(|file| database(file, file_status)).transpose()
    }

    fn begin(&self, file_status: &Arc<FileStatus>) -> Result<Database, DatabaseError> {
        database(StoreLocation::begin(self)?, file_status)
    }

    fn preserve(&self, format: u32) -> io::Result<()> {
        StoreLocation::preserve(self, format)
    }

    fn replace(&self) -> io::Result<()> {
        StoreLocation::replace(self)
    }
}

fn database(file: impl StorageBackend, file_status: &Arc<FileStatus>) -> Result<Database, DatabaseError> {
    let disk = Disk { inner: file, file_status: Arc::clone(file_status) };
    file_status.length.store(disk.len()?, Ordering::Relaxed);
    Builder::new().set_cache_size(CACHE).create_with_backend(disk)
}

/// A storage backend that records its length and whether a sync has failed.
struct Disk<B> {
    inner: B,
    file_status: Arc<FileStatus>,
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
        self.inner.set_len(len).inspect(|()| self.file_status.length.store(len, Ordering::Relaxed))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.inner.sync_data().inspect_err(|_| self.file_status.sync_failed.store(true, Ordering::Release))
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
