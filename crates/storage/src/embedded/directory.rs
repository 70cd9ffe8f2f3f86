//! The data directory: its permissions, its lock and its files.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageError};

use crate::error::OpenError;

use super::location::StoreLocation;

const FILE: &str = "store.redb";
/// Name of the file until it is complete.
const NEW: &str = "store.redb.new";
const LOCK: &str = "LOCK";

/// Reports whether a directory contains a store.
pub fn is_store(directory: &Path) -> bool {
    directory.join(FILE).is_file()
}

/// Reports whether a file of this name, in a directory without other files, is one of the store.
pub(super) fn is_own_file(name: &OsStr) -> bool {
    [FILE, NEW, LOCK].iter().any(|own| *own == name)
}

/// Removes the store's files, complete or not, from a directory that this process has locked.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    remove_if_there(&directory.join(FILE))?;
    remove_if_there(&directory.join(NEW))
}

/// Maximum number of preserved files of one format.
const MAX_PRESERVED_FILES: usize = 100;

/// A directory that this process has locked until the value is dropped.
#[derive(Debug)]
pub(super) struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

impl DataDirectory {
    /// Creates the directory if needed, checks that it is private, and locks it.
    pub(super) fn lock(path: &Path) -> Result<DataDirectory, OpenError> {
        let failed = |source| OpenError::DataDirectory { path: path.to_owned(), source };
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(failed)?;
        check_private(path)?;
        let lock = private(OpenOptions::new().create(true).truncate(false).write(true)).open(path.join(LOCK));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(DataDirectory { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    pub(super) fn file_path(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// A free name under which to preserve the file of this format; files preserved by earlier migrations are not overwritten. `None` if
    /// the file already has such a name, from an interrupted migration.
    fn name_for(&self, format: u32) -> io::Result<Option<PathBuf>> {
        for number in 1..=MAX_PRESERVED_FILES {
            let name =
                if number == 1 { format!("{FILE}.v{format}") } else { format!("{FILE}.v{format}.{number}") };
            let path = self.path.join(name);
            if !path.try_exists()? {
                return Ok(Some(path));
            }
            if is_same(&self.file_path(), &path)? {
                return Ok(None);
            }
        }
        Err(io::Error::other(format!(
            "the old file cannot be kept: `{FILE}.v{format}` and {} others are there already; move them away",
            MAX_PRESERVED_FILES - 1
        )))
    }
}

impl StoreLocation for DataDirectory {
    type File = FileBackend;

    fn open(&self) -> io::Result<Option<FileBackend>> {
        let path = self.file_path();
        if !path.try_exists()? {
            return Ok(None);
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        backend(file).map(Some)
    }

    fn begin(&self) -> io::Result<FileBackend> {
        let mut options = OpenOptions::new();
        private(options.read(true).write(true).create(true).truncate(true));
        backend(options.open(self.path.join(NEW))?)
    }

    fn preserve(&self, format: u32) -> io::Result<()> {
        let unfinished = self.path.join(format!("{FILE}.v{format}.new"));
        remove_if_there(&unfinished)?;
        let Some(preserved) = self.name_for(format)? else { return Ok(()) };
        // A hard link costs no space. If the file system does not support it, copy the file.
        if std::fs::hard_link(self.file_path(), &unfinished).is_err() {
            std::fs::copy(self.file_path(), &unfinished)?;
            File::open(&unfinished)?.sync_all()?;
        }
        std::fs::rename(&unfinished, &preserved)?;
        // If both names are links to one file, `rename` leaves both.
        remove_if_there(&unfinished)?;
        File::open(&self.path)?.sync_all()
    }

    fn replace(&self) -> io::Result<()> {
        std::fs::rename(self.path.join(NEW), self.file_path())?;
        File::open(&self.path)?.sync_all()?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // The parent is not ours: if it cannot be opened, skip its sync.
        if let Ok(parent) = File::open(parent.unwrap_or(Path::new("."))) {
            parent.sync_all()?;
        }
        Ok(())
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reports whether two paths are one file, or files with equal content.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (one, other) = (one.metadata()?, other.metadata()?);
        if (one.dev(), one.ino()) == (other.dev(), other.ino()) {
            return Ok(true);
        }
    }
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left.get(..length) != right.get(..length) {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        one.consume(length);
        other.consume(length);
    }
}

fn backend(file: File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(|error| match error {
        DatabaseError::Storage(StorageError::Io(error)) => error,
        other => io::Error::other(other),
    })
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(unix)]
fn check_private(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata =
        path.metadata().map_err(|source| OpenError::DataDirectory { path: path.to_owned(), source })?;
    let mode = metadata.permissions().mode() & 0o7777;
    let others = mode & 0o077;
    if others == 0 { Ok(()) } else { Err(OpenError::TooOpen { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> Result<(), OpenError> {
    Ok(())
}
