//! Reads the files of a manifest directory, within size limits and only once they have stopped changing.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use admission::manifests::{self, LoadError, ManifestFile, ManifestSet};
use runtime::files::go_words;

/// Most bytes of all files of one directory together.
const MAX_BYTES: usize = 256 << 20;
/// Most files of one directory.
const MAX_FILES: usize = 100_000;

/// Reads the manifests directly in a directory and its list of expected objects, sorted by name. Files with other extensions are skipped.
/// A file that cannot be read is returned with its error.
pub fn read(set: ManifestSet, directory: &Path) -> Result<Vec<ManifestFile>, LoadError> {
    let shown = directory.display().to_string();
    let refused = |why: String| {
        let what = format!("failed to read manifest directory {}: {why}", api::field::quote(&shown));
        LoadError::directory(set, &shown, &what)
    };
    let entries =
        std::fs::read_dir(directory).map_err(|e| refused(format!("open {shown}: {}", go_words(&e))))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| refused(go_words(&e)))?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name();
        if !is_directory && name.to_str().is_some_and(manifests::is_read) {
            names.push(name);
        }
        if names.len() > MAX_FILES {
            return Err(refused(format!("it has more than {MAX_FILES} files")));
        }
    }
    names.sort();
    let mut left = MAX_BYTES;
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let path = directory.join(name);
        let content = read_file(&path, left);
        if let Ok(content) = &content {
            left = left.saturating_sub(content.len());
        }
        files.push(ManifestFile { path: path.display().to_string(), content });
    }
    Ok(files)
}

/// Why a directory cannot be loaded now.
pub(super) enum Unsettled {
    /// The directory cannot be read.
    Unreadable(LoadError),
    /// The directory kept changing, so loading it could put an incomplete set of manifests in force.
    StillWritten(LoadError),
}

impl Unsettled {
    pub(super) fn into_refused(self) -> LoadError {
        match self {
            Unsettled::Unreadable(refused) | Unsettled::StillWritten(refused) => refused,
        }
    }
}

/// Reads the files of a directory that has stopped changing: several reads in a row must agree. A directory that keeps changing is refused,
/// because a valid part of a set of policies must not be taken for the whole.
///
/// A file that is written in place is empty for a moment, and an empty file has no policy. So a file that is empty now but was not in
/// `before` must stay empty for longer.
pub(super) fn settled(
    set: ManifestSet,
    directory: &Path,
    before: &[ManifestFile],
) -> Result<Vec<ManifestFile>, Unsettled> {
    let shown = directory.display().to_string();
    let still_written = || {
        let what = format!(
            "manifest directory {} is still being written: it changed again and again for {} ms",
            api::field::quote(&shown),
            SETTLE.as_millis() * SETTLING as u128
        );
        Unsettled::StillWritten(LoadError::directory(set, &shown, &what))
    };
    let mut read = || read(set, directory).map_err(Unsettled::Unreadable);
    settle(&mut read, || std::thread::sleep(SETTLE), before)?.ok_or_else(still_written)
}

/// Reads until the result stays the same. `None` if it keeps changing.
fn settle<E>(
    read: &mut impl FnMut() -> Result<Vec<ManifestFile>, E>,
    mut pause: impl FnMut(),
    before: &[ManifestFile],
) -> Result<Option<Vec<ManifestFile>>, E> {
    let mut files = read()?;
    let mut calm = 0;
    for _ in 0..SETTLING {
        pause();
        let again = read()?;
        calm = if again == files { calm + 1 } else { 0 };
        files = again;
        let wanted = if files.iter().any(|file| is_emptied(file, before)) { EMPTY_FOR } else { QUIET_FOR };
        if calm >= wanted {
            return Ok(Some(files));
        }
    }
    Ok(None)
}

/// Whether the last change of the directory and of everything in it is longer ago than [`OLD`], so that one read is enough.
pub(super) fn is_old(directory: &Path) -> bool {
    let now = SystemTime::now();
    let is_old = |path: &Path| {
        let changed = std::fs::metadata(path).and_then(|found| found.modified());
        changed.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > OLD))
    };
    is_old(directory)
        && std::fs::read_dir(directory)
            .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_old(&entry.path()))))
}

/// Whether a file is empty now, and was not empty or did not exist before.
fn is_emptied(file: &ManifestFile, before: &[ManifestFile]) -> bool {
    file.content.as_ref().is_ok_and(Vec::is_empty) && !before.contains(file)
}

/// Reads a file of at most `most` bytes. Errors have Go's words: `open PATH: no such file or directory`.
fn read_file(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let file = runtime::files::open(path).map_err(|e| format!("open {shown}: {}", go_words(&e)))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|e| format!("read {shown}: {}", go_words(&e)))?;
    if bytes.len() > most {
        return Err(format!(
            "read {shown}: the files of the directory are longer than {MAX_BYTES} bytes together"
        ));
    }
    Ok(bytes)
}

/// Pause between two reads of a directory.
const SETTLE: Duration = Duration::from_millis(15);
/// How many reads in a row must find a directory unchanged: they take somewhat more than a tenth of a second.
const QUIET_FOR: usize = 7;
/// How many reads in a row must find a directory unchanged if a file in it has just become empty.
const EMPTY_FOR: usize = 15;
/// How many times a directory that keeps changing is read again before it is refused.
const SETTLING: usize = 80;
/// A file whose last write is older than this is not being written.
const OLD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
