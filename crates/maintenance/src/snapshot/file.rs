//! The file that a snapshot is saved to.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use runtime::random;
use storage::snapshot::{SnapshotReader, SnapshotSummary};

use super::SnapshotCommandError;

/// A snapshot being written to a file beside its final path. Dropped before [`SnapshotFile::finish`], it is removed.
///
/// The file is readable by its owner only. It is created under an unpredictable name and never through a link, so that in a directory
/// that others can write to, no other user can redirect it or open it first.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl SnapshotFile {
    pub(super) fn create(path: &Path) -> Result<SnapshotFile, SnapshotCommandError> {
        let failed = |source| SnapshotCommandError::File { path: path.to_owned(), source };
        let name = path.file_name().ok_or_else(|| failed(io::Error::other("it does not name a file")))?;
        // Renaming would replace a device or a pipe, and cannot replace a directory.
        match path.symlink_metadata() {
            Ok(existing) if !existing.is_file() => {
                return Err(failed(io::Error::other("it exists and is not a regular file")));
            }
            _ => {}
        }
        let mut part = OsString::from(".");
        part.push(name);
        part.push(format!(".{}.part", random::uid()));
        let part = path.with_file_name(part);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).map_err(failed)?;
        Ok(SnapshotFile { path: path.to_owned(), part, file })
    }

    /// Syncs the file, verifies it by reading it, and renames it to its final path.
    pub(super) fn finish(self) -> Result<SnapshotSummary, SnapshotCommandError> {
        let rename = || {
            fs::rename(&self.part, &self.path)?;
            let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        self.file.sync_all().map_err(|source| self.failed(source))?;
        let summary = SnapshotReader::verify(&self.part)?;
        rename().map_err(|source| self.failed(source))?;
        Ok(summary)
    }

    pub(super) fn failed(&self, source: io::Error) -> SnapshotCommandError {
        SnapshotCommandError::File { path: self.path.clone(), source }
    }
}

impl Write for SnapshotFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        // After `finish` there is no file under this name.
        let _ = fs::remove_file(&self.part);
    }
}
