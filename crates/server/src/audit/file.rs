//! Where lines go: standard output, or a file that is put aside when it is full.
//!
//! A full file is renamed to `NAME-TIME.EXT` beside itself, as the log rotation that Kubernetes uses does; old ones are
//! compressed and removed by a thread of their own, so that no line waits for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::time::Timestamp;
use flate2::Compression;
use flate2::write::GzEncoder;
use tracing::warn;

/// How a file is kept small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// `--audit-log-maxsize`, in megabytes; 0 never puts a file aside.
    pub max_megabytes: u64,
    /// `--audit-log-maxage`, in days; 0 keeps old files for ever.
    pub max_days: u64,
    /// `--audit-log-maxbackup`; 0 keeps all.
    pub max_backups: usize,
    /// `--audit-log-compress`.
    pub compress: bool,
}

/// Where lines go.
#[derive(Debug)]
pub(super) enum Output {
    Stdout,
    File(RotatedFile),
}

impl Output {
    /// Opens the file, with its folder.
    pub(super) fn file(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            create_private_dir(folder)?;
        }
        let file = append(path)?;
        let size = file.metadata()?.len();
        let file = RotatedFile { path: path.to_owned(), rotation, file, size };
        file.tidy();
        Ok(Output::File(file))
    }

    /// Writes lines, one after the other; says of each whether it was written.
    pub(super) fn write(&mut self, lines: &[Vec<u8>]) -> Vec<io::Result<()>> {
        match self {
            Output::Stdout => {
                let mut out = io::stdout().lock();
                lines.iter().map(|line| out.write_all(line).and_then(|()| out.flush())).collect()
            }
            Output::File(file) => lines.iter().map(|line| file.write(line)).collect(),
        }
    }
}

#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

impl RotatedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let max = self.rotation.max_megabytes.saturating_mul(1024 * 1024);
        let len = line.len() as u64;
        if max > 0 {
            if len > max {
                let why = format!("write length {len} exceeds maximum file size {max}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            if self.size + len > max {
                self.rotate()?;
            }
        }
        let written = self.file.write_all(line);
        // After a part of a line the size is a guess; the next look at the file corrects it.
        self.size =
            if written.is_ok() { self.size + len } else { self.file.metadata().map_or(0, |m| m.len()) };
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut millis = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let mut backup = backup_name(&self.path, millis);
        // Two full files within a millisecond must not become one.
        while backup.exists() {
            millis += 1;
            backup = backup_name(&self.path, millis);
        }
        match fs::rename(&self.path, &backup) {
            // Somebody else moved it away: then there is nothing to keep, and a new one to begin.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome?,
        }
        self.file = append(&self.path)?;
        self.size = 0;
        self.tidy();
        Ok(())
    }

    fn tidy(&self) {
        let Rotation { max_days, max_backups, compress, max_megabytes } = self.rotation.clone();
        if max_megabytes == 0 || (max_days == 0 && max_backups == 0 && !compress) {
            return;
        }
        let path = self.path.clone();
        let work = move || {
            static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
            let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = tidy(&path, max_days, max_backups, compress) {
                warn!(%error, path = %path.display(), "old audit logs could not be tidied");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("audit-tidy".to_owned()).spawn(work) {
            warn!(%error, "old audit logs could not be tidied");
        }
    }
}

/// `audit.log` of a moment is `audit-2006-01-02T15-04-05.000.log`.
fn backup_name(path: &Path, millis: i64) -> PathBuf {
    let (stem, extension) = parts(path);
    let time = Timestamp::from_micros(millis.saturating_mul(1000)).micro_time();
    let time = time.get(..23).unwrap_or(&time).replace(':', "-");
    path.with_file_name(format!("{stem}-{time}{extension}"))
}

/// The name without its extension, and the extension with its dot.
fn parts(path: &Path) -> (String, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.rfind('.') {
        Some(at) => {
            let (stem, extension) = name.split_at_checked(at).unwrap_or((&name, ""));
            (stem.to_owned(), extension.to_owned())
        }
        None => (name.into_owned(), String::new()),
    }
}

/// Compresses what was put aside and removes what is too old or too much.
fn tidy(path: &Path, max_days: u64, max_backups: usize, compress: bool) -> io::Result<()> {
    let (stem, extension) = parts(path);
    let prefix = format!("{stem}-");
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut backups: Vec<(i64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let time =
            plain.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(&extension)).and_then(moment);
        if let Some(time) = time {
            backups.push((time, entry.path()));
        }
    }
    backups.sort_unstable_by(|a, b| b.cmp(a));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let oldest = now.saturating_sub(Duration::from_secs(max_days.saturating_mul(24 * 3600)));
    let oldest = i64::try_from(oldest.as_millis()).unwrap_or(i64::MAX);
    // A file and its compressed form are one backup, while the one becomes the other.
    let mut kept: Vec<i64> = Vec::new();
    for (time, file) in backups {
        if kept.last() != Some(&time) {
            kept.push(time);
        }
        let too_many = max_backups > 0 && kept.len() > max_backups;
        let too_old = max_days > 0 && time < oldest;
        if too_many || too_old {
            fs::remove_file(&file)?;
        } else if compress && file.extension().is_none_or(|e| e != "gz") {
            pack(&file)?;
        }
    }
    Ok(())
}

/// The time in the name of a backup, in milliseconds since 1970.
fn moment(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let time = time.replace('-', ":");
    let parsed = Timestamp::parse_micro(&format!("{date}T{time}000Z")).ok()?;
    Some(parsed.micros() / 1000)
}

fn pack(file: &Path) -> io::Result<()> {
    let packed = PathBuf::from(format!("{}.gz", file.display()));
    let outcome = (|| {
        let mut encoder = GzEncoder::new(private(&packed, false)?, Compression::default());
        io::copy(&mut File::open(file)?, &mut encoder)?;
        encoder.finish()?.sync_all()
    })();
    match outcome {
        Ok(()) => fs::remove_file(file),
        Err(error) => {
            let _ = fs::remove_file(&packed);
            Err(error)
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    private(path, true)
}

/// A file that only its owner reads: an audit log tells who did what.
fn private(path: &Path, append: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(append).write(!append).truncate(!append);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_private_dir(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests;
