//! Reads files with a size limit and reports errors in Go's wording.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// Size limit in bytes. No reasonable configuration file is larger.
const MAX_FILE: u64 = 8 << 20;

/// Reads a file. The error is the reason without the path, for example `no such file or directory`.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| go_words(&error))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| go_words(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE {
        return Err(format!("it is longer than {MAX_FILE} bytes"));
    }
    Ok(bytes)
}

/// Formats an I/O error like Go: without the error number, and in lower case.
pub fn go_words(error: &std::io::Error) -> String {
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
