//! Output of the audit log: standard output, or a file with rotation.
//!
//! A full file is renamed to `NAME-TIME.EXT` in its directory, like the log rotation of kube-apiserver. A
//! separate thread compresses and removes old files, so that no event waits for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::time::Timestamp;
use flate2::Compression;
use flate2::write::GzEncoder;
use tracing::warn;

/// Limits on the size, age and number of log files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// `--audit-log-maxsize` in megabytes; 0 disables rotation.
    pub max_megabytes: u64,
    /// `--audit-log-maxage` in days; 0 retains old files forever.
    pub max_days: u64,
    /// `--audit-log-maxbackup`; 0 retains all old files.
    pub max_backups: usize,
    /// `--audit-log-compress`: gzip rotated files.
    pub compress: bool,
}

#[derive(Debug)]
pub(super) enum AuditFileOutput {
    Stdout,
    File(RotatedFile),
}

impl AuditFileOutput {
    /// Opens or creates the file, and creates its directory.
    pub(super) fn file(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            create_private_dir(directory)?;
        }
        let file = append(path)?;
        let size = file.metadata()?.len();
        let file = RotatedFile { path: path.to_owned(), rotation, file, size };
        file.tidy();
        Ok(AuditFileOutput::File(file))
    }

    /// Writes the lines in order; returns one result per line.
    pub(super) fn write(&mut self, lines: &[Vec<u8>]) -> Vec<io::Result<()>> {
        match self {
            AuditFileOutput::Stdout => {
                let mut out = io::stdout().lock();
                lines.iter().map(|line| out.write_all(line).and_then(|()| out.flush())).collect()
            }
            AuditFileOutput::File(file) => lines.iter().map(|line| file.write(line)).collect(),
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
        // After a partial write the size is unknown, so it is read from the file.
        self.size =
            if written.is_ok() { self.size + len } else { self.file.metadata().map_or(0, |m| m.len()) };
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut millis = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let mut backup = backup_name(&self.path, millis);
        // Two rotations within a millisecond must not overwrite each other.
        while backup.exists() {
            millis += 1;
            backup = backup_name(&self.path, millis);
        }
        match fs::rename(&self.path, &backup) {
            // Another process moved the file away: there is no backup to make.
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
                warn!(%error, path = %path.display(), "cannot compress or remove old audit logs; check the permissions of their directory");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("audit-tidy".to_owned()).spawn(work) {
            warn!(%error, "cannot start the thread that compresses and removes old audit logs; they stay until the next rotation: check the limit on threads");
        }
    }
}

/// For example, `audit.log` becomes `audit-2006-01-02T15-04-05.000.log`.
fn backup_name(path: &Path, millis: i64) -> PathBuf {
    let (stem, extension) = parts(path);
    let time = Timestamp::from_micros(millis.saturating_mul(1000)).micro_time();
    let time = time.get(..23).unwrap_or(&time).replace(':', "-");
    path.with_file_name(format!("{stem}-{time}{extension}"))
}

/// The file name without its extension, and the extension with its dot.
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

/// Compresses backups and removes those beyond the age or number limit.
fn tidy(path: &Path, max_days: u64, max_backups: usize, compress: bool) -> io::Result<()> {
    let (stem, extension) = parts(path);
    let prefix = format!("{stem}-");
    let directory = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut backups: Vec<(i64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)? {
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
    // A file and its compressed form count as one backup, since both exist during compression.
    let mut backup_times: Vec<i64> = Vec::new();
    for (time, file) in backups {
        if backup_times.last() != Some(&time) {
            backup_times.push(time);
        }
        let too_many = max_backups > 0 && backup_times.len() > max_backups;
        let too_old = max_days > 0 && time < oldest;
        if too_many || too_old {
            fs::remove_file(&file)?;
        } else if compress && file.extension().is_none_or(|e| e != "gz") {
            pack(&file)?;
        }
    }
    Ok(())
}

/// Parses the time in a backup's name, in milliseconds since the Unix epoch.
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

/// Opens a file with mode 0600, because audit logs contain sensitive data.
fn private(path: &Path, append: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(append).write(!append).truncate(!append);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_private_dir(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(test)]
mod tests;
