//! `portcullis store`: the store of a server that does not run.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use server::offline;

use crate::serve::runtime;

/// The flags of `store`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Remove one key and the object stored under it, without asking any policy.
    ///
    /// For an object that the server cannot read. Its key is in the server's log, in the error of requests that need the object,
    /// and in the output of `portcullis store check`. The server must be stopped. Nothing else is changed: what refers to the
    /// object still does. Exits with 0 if the key was removed and 1 if not.
    DeleteKey(DeleteKeyArgs),
    /// List the keys whose objects cannot be read. The server must be stopped.
    ///
    /// Exits with 0 if every object can be read and 1 if not.
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
struct DeleteKeyArgs {
    /// The key, as in `/registry/configmaps/default/example`.
    key: String,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct DataArgs {
    /// The data folder, as given to `portcullis serve` or `portcullis up`.
    #[arg(long)]
    data_dir: PathBuf,
}

/// Runs `portcullis store`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match &args.task {
        Task::DeleteKey(DeleteKeyArgs { key, data }) => {
            let removed = runtime()?.block_on(offline::delete_key(&data.data_dir, key))?;
            let was = match &removed.unreadable {
                Some(why) => format!("it could not be read: {why}"),
                None => "it could be read".to_owned(),
            };
            writeln!(out, "removed {key} (revision {}, {} bytes; {was})", removed.revision, removed.bytes)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Check(CheckArgs { data }) => {
            let (unreadable, objects) = runtime()?.block_on(offline::check(&data.data_dir))?;
            for found in &unreadable {
                writeln!(out, "{}: {}", found.key, found.why)?;
            }
            writeln!(out, "{objects} objects, {} cannot be read", unreadable.len())?;
            Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
