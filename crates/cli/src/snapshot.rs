//! `portcullis snapshot`: saves, verifies and restores snapshots of the store.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use maintenance::snapshot::{self, SNAPSHOT_FORMAT, SnapshotSummary};
use value::{Value, write};

use crate::check::counted;
use crate::serve::{runtime, wait_for_signal};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SnapshotCommand {
    /// Save all objects to a file, from a running server or from the data directory of a stopped one.
    ///
    /// The snapshot is consistent: it has the objects of one revision, although the server goes on. It contains Secrets; the file is
    /// readable by its owner only. An existing file is replaced when the new one is complete and verified.
    /// The server requires permission to `post` to /portcullis/snapshot and to `list` all resources, as cluster-admin has.
    /// Exit codes: 0 saved, 1 not saved, 2 usage error.
    Save(SnapshotSaveArgs),
    /// Verify a snapshot; print its hash, revision, number of keys, size and versions.
    ///
    /// Exit codes: 0 valid, 1 damaged or unreadable, 2 usage error.
    Status(SnapshotStatusArgs),
    /// Write a snapshot to a new data directory, from which a server can be started.
    ///
    /// Objects have the resourceVersions that they had. Revisions before the snapshot's are compacted: clients that watch from one list
    /// again. If the directory exists and is not empty, nothing is written; an interrupted restore leaves no data directory.
    /// Exit codes: 0 restored, 1 not restored, 2 usage error.
    Restore(SnapshotRestoreArgs),
}

#[derive(Debug, clap::Args)]
struct SnapshotSaveArgs {
    /// File to write the snapshot to.
    file: PathBuf,
    /// Kubeconfig of the running server; its current context is used. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, conflicts_with = "data_dir")]
    kubeconfig: Option<PathBuf>,
    /// Data directory of a stopped server, as for `portcullis serve` or `portcullis up`.
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct SnapshotStatusArgs {
    /// Snapshot file to read.
    file: PathBuf,
    /// Format of the output.
    #[arg(
        short = 'o',
        long = "output",
        visible_alias = "write-out",
        visible_short_alias = 'w',
        default_value = "table"
    )]
    output: StatusFormat,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum StatusFormat {
    Table,
    Json,
}

#[derive(Debug, clap::Args)]
struct SnapshotRestoreArgs {
    /// Snapshot file to read.
    file: PathBuf,
    /// Directory to create: as --data-dir of `portcullis serve`, or the subdirectory `store` of that of `portcullis up`.
    #[arg(long)]
    data_dir: PathBuf,
    /// Raise the revision of the store by this number, so that revisions which clients saw after the snapshot are not used again, and
    /// those clients list again.
    #[arg(long, value_name = "N", default_value_t = 0)]
    bump_revision: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match &args.command {
        SnapshotCommand::Save(args) => {
            let saved = save(args)?;
            let SnapshotSummary { header, entries, bytes, .. } = &saved;
            let (file, keys) = (args.file.display(), counted(usize::try_from(*entries)?, "key"));
            writeln!(out, "saved {file} (revision {}, {keys}, {bytes} bytes)", header.revision)?;
        }
        SnapshotCommand::Status(SnapshotStatusArgs { file, output }) => {
            let status = snapshot::status(file)?;
            match output {
                StatusFormat::Table => write!(out, "{}", table(&status))?,
                StatusFormat::Json => writeln!(out, "{}", json(&status))?,
            }
        }
        SnapshotCommand::Restore(SnapshotRestoreArgs { file, data_dir, bump_revision }) => {
            let restored = snapshot::restore(file, data_dir, *bump_revision)?;
            let keys = counted(usize::try_from(restored.snapshot.entries)?, "key");
            writeln!(out, "restored {} ({keys}, revision {})", data_dir.display(), restored.revision)?;
        }
    }
    Ok(())
}

fn save(args: &SnapshotSaveArgs) -> Result<SnapshotSummary> {
    if let Some(data) = &args.data_dir {
        return Ok(snapshot::save_stopped(data, &args.file)?);
    }
    let kubeconfig = match &args.kubeconfig {
        Some(path) => path.clone(),
        None => default_kubeconfig(env::var_os("KUBECONFIG").map(PathBuf::from), env::home_dir().as_deref())?,
    };
    runtime()?.block_on(async {
        tokio::select! {
            saved = snapshot::save_online(&kubeconfig, &args.file) => Ok(saved?),
            // Dropping the future removes the incomplete file.
            _ = wait_for_signal() => bail!("interrupted; nothing was saved"),
        }
    })
}

/// The kubeconfig that kubectl would use, as far as that is one file.
fn default_kubeconfig(variable: Option<PathBuf>, home: Option<&Path>) -> Result<PathBuf> {
    match variable.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) if path.as_os_str().as_encoded_bytes().contains(&b':') => {
            bail!("KUBECONFIG names several files; name one with --kubeconfig")
        }
        Some(path) => Ok(path),
        None => match home.map(|home| home.join(".kube/config")).filter(|path| path.exists()) {
            Some(path) => Ok(path),
            None => bail!(
                "no server is named: pass --kubeconfig, or --data-dir for the store of a stopped server"
            ),
        },
    }
}

/// The columns of `etcdutl snapshot status`, and the format of the file.
fn columns(status: &SnapshotSummary) -> [(&'static str, String); 6] {
    [
        ("HASH", status.digest.to_string()),
        ("REVISION", status.header.revision.to_string()),
        ("TOTAL KEYS", status.entries.to_string()),
        ("TOTAL SIZE", status.bytes.to_string()),
        ("FORMAT", SNAPSHOT_FORMAT.to_string()),
        ("VERSION", status.header.program.clone()),
    ]
}

fn table(status: &SnapshotSummary) -> String {
    let columns = columns(status);
    let width = |(name, value): &(&str, String)| name.len().max(value.chars().count());
    let row = |cell: &dyn Fn(&(&'static str, String)) -> String, separator: &str| {
        let cells = columns.iter().map(cell).collect::<Vec<_>>().join(separator);
        format!("{separator}{cells}{separator}\n")
    };
    let rule = row(&|column| "-".repeat(width(column) + 2), "+");
    let names = row(&|column| format!(" {:<1$} ", column.0, width(column)), "|");
    let values = row(&|column| format!(" {:<1$} ", column.1, width(column)), "|");
    format!("{rule}{names}{rule}{values}{rule}")
}

/// The fields of `etcdutl snapshot status -w json`, and those that etcd does not have.
fn json(status: &SnapshotSummary) -> String {
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let header = &status.header;
    let document = Value::map([
        ("hash", Value::from(status.digest.to_string())),
        ("revision", number(header.revision)),
        ("totalKey", number(status.entries)),
        ("totalSize", number(status.bytes)),
        ("version", Value::from(header.program.clone())),
        ("format", number(SNAPSHOT_FORMAT.into())),
        ("storeFormat", number(header.store_format.into())),
        ("savedAt", number(header.saved_at)),
    ]);
    String::from_utf8_lossy(&write::to_vec(&document)).into_owned()
}

#[cfg(test)]
mod tests;
