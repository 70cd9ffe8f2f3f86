//! Reads files with a size limit and reports errors in Go's wording.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Size limit in bytes. No reasonable configuration file is larger.
const MAX_FILE: u64 = 8 << 20;

/// Opens a file for reading. Neither this nor reading from it ever blocks until another program does something: the server reads some
/// files again and again, and one that blocks would keep it from noticing changes of all others.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    // Reading a directory fails with an error of its own.
    if found.is_file() || found.is_dir() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Reads a file. The error is the reason without the path, for example `no such file or directory`.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = open(path).map_err(|error| go_words(&error))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| go_words(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE {
        return Err(format!("it is longer than {MAX_FILE} bytes"));
    }
    Ok(bytes)
}

/// Formats an I/O error like Go: without the error number, and in lower case.
pub fn go_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => return "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => return "permission denied".to_owned(),
        _ => {}
    }
    let text = error.to_string();
    let mut text = text.split(" (os error").next().unwrap_or_default().to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn files_that_would_block_their_reader_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "content").unwrap();
        symlink(path("file"), path("link")).unwrap();
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink(path("pipe"), path("link-to-pipe")).unwrap();
        assert_eq!(read(&path("file")), Ok(b"content".to_vec()));
        assert_eq!(read(&path("link")), Ok(b"content".to_vec()));
        for name in ["pipe", "link-to-pipe"] {
            assert_eq!(read(&path(name)), Err("it is not a regular file".to_owned()), "{name}");
        }
        assert_eq!(read(Path::new("/dev/zero")), Err("it is not a regular file".to_owned()));
        assert_eq!(read(&path("none")), Err("no such file or directory".to_owned()));
        assert_eq!(read(folder.path()), Err("is a directory".to_owned()));
    }
}
