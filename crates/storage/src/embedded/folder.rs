//! The folder: its permissions, its lock, its file.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

const FILE: &str = "store.redb";
/// The file while it is being made.
const NEW: &str = "store.redb.new";
const LOCK: &str = "LOCK";

/// A folder that this process holds until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Creates the folder if need be, checks that it is private, and takes hold of it.
    pub(super) fn hold(path: &Path) -> Result<Folder, OpenError> {
        let failed = |source| OpenError::Folder { path: path.to_owned(), source };
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(failed)?;
        check_private(path)?;
        let lock = private(OpenOptions::new().create(true).truncate(false).write(true)).open(path.join(LOCK));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Where the file is.
    pub(super) fn file_path(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// Opens the file; if there is none, makes a new one under another name, for [`Folder::settle`].
    pub(super) fn file(&self) -> io::Result<File> {
        let path = self.file_path();
        let mut options = OpenOptions::new();
        private(options.read(true).write(true));
        if path.try_exists()? {
            options.open(path)
        } else {
            options.create(true).truncate(true).open(self.path.join(NEW))
        }
    }

    /// Gives a new file its name, and makes sure that a crash does not take it away again.
    pub(super) fn settle(&self) -> io::Result<()> {
        let path = self.file_path();
        if path.try_exists()? {
            return Ok(());
        }
        std::fs::rename(self.path.join(NEW), path)?;
        File::open(&self.path)?.sync_all()?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // The parent is not ours: where it cannot be opened, there is nothing to be done.
        if let Ok(parent) = File::open(parent.unwrap_or(Path::new("."))) {
            parent.sync_all()?;
        }
        Ok(())
    }
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(unix)]
fn check_private(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = path.metadata().map_err(|source| OpenError::Folder { path: path.to_owned(), source })?;
    let mode = metadata.permissions().mode() & 0o7777;
    let others = mode & 0o077;
    if others == 0 { Ok(()) } else { Err(OpenError::TooOpen { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> Result<(), OpenError> {
    Ok(())
}
