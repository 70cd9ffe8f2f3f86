use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::{AuditFileOutput, Rotation, backup_name, moment, tidy};

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn rotation(max_megabytes: u64) -> Rotation {
    Rotation { max_megabytes, max_days: 0, max_backups: 0, compress: false }
}

#[test]
fn a_full_audit_log_is_rotated_without_splitting_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/audit.log");
    let mut output = AuditFileOutput::file(&path, rotation(1)).unwrap();
    let line = vec![b'x'; 400 * 1024];
    let outcomes = output.write(&[line.clone(), line.clone(), line.clone()]);
    assert!(outcomes.iter().all(Result::is_ok));
    let names = names(path.parent().unwrap());
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with("audit-20") && names[0].contains(".log"), "{names:?}");
    assert_eq!(fs::metadata(path.with_file_name(&names[0])).unwrap().len(), 800 * 1024);
    assert_eq!(fs::metadata(&path).unwrap().len(), 400 * 1024);
}

#[test]
fn a_line_longer_than_a_file_is_refused_and_an_unbounded_file_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let line = vec![b'x'; 1024 * 1024 + 1];
    let mut bounded = AuditFileOutput::file(&directory.path().join("a.log"), rotation(1)).unwrap();
    let error = bounded.write(std::slice::from_ref(&line)).remove(0).unwrap_err();
    assert_eq!(error.to_string(), "write length 1048577 exceeds maximum file size 1048576");
    let mut unbounded = AuditFileOutput::file(&directory.path().join("b.log"), rotation(0)).unwrap();
    assert!(unbounded.write(&[line]).remove(0).is_ok());
}

#[test]
fn a_full_file_that_was_removed_is_created_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut output = AuditFileOutput::file(&path, rotation(1)).unwrap();
    let line = vec![b'x'; 600 * 1024];
    assert!(output.write(std::slice::from_ref(&line)).remove(0).is_ok());
    fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        output.write(std::slice::from_ref(&line)).remove(0).unwrap();
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 600 * 1024);
}

#[cfg(unix)]
#[test]
fn the_audit_log_is_readable_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/audit.log");
    let _output = AuditFileOutput::file(&path, rotation(1)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
}

#[test]
fn old_files_are_compressed_and_the_oldest_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    let day = 24 * 3600 * 1000;
    let backups: Vec<PathBuf> =
        [now - 1, now - day, now - 2 * day, now - 40 * day].map(|t| backup_name(&path, t)).to_vec();
    for backup in &backups {
        fs::write(backup, "line\n").unwrap();
    }
    fs::write(directory.path().join("audit-notes.log"), "").unwrap();
    tidy(&path, 30, 2, true).unwrap();
    let left = names(directory.path());
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.contains(&"audit-notes.log".to_owned()));
    let packed = format!("{}.gz", backups[0].display());
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(packed).unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "line\n");
    // Without limits no file is removed.
    tidy(&path, 0, 0, false).unwrap();
    assert_eq!(names(directory.path()).len(), 3);
}

#[test]
fn audit_log_backup_names_contain_their_timestamp() {
    let name = backup_name(Path::new("/x/audit.log"), 1_700_000_000_123);
    assert_eq!(name, Path::new("/x/audit-2023-11-14T22-13-20.123.log"));
    assert_eq!(moment("2023-11-14T22-13-20.123"), Some(1_700_000_000_123));
    assert_eq!(moment("notes"), None);
}
