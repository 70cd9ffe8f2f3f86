//! `portcullis store`: checks or repairs the store of a stopped server.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use server::offline;

use crate::check::counted;
use crate::serve::runtime;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, clap::Subcommand)]
enum StoreCommand {
    /// Delete one stored object without admission; the server must be stopped.
    ///
    /// Use it for an object that the server cannot read. Its key is in the server's log, in the error of requests that need the object,
    /// and in the output of `portcullis store check`. References from other objects are not changed.
    /// Exit codes: 0 deleted, 1 not deleted, 2 usage error.
    DeleteKey(DeleteKeyArgs),
    /// List stored objects that cannot be read; the server must be stopped.
    ///
    /// Exit codes: 0 all objects can be read, 1 some cannot, 2 usage error.
    Check(StoreCheckArgs),
}

#[derive(Debug, clap::Args)]
struct DeleteKeyArgs {
    /// Storage key, such as /registry/configmaps/default/example.
    key: String,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct StoreCheckArgs {
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct DataArgs {
    /// Data directory, as for `portcullis serve` or `portcullis up`.
    #[arg(long)]
    data_dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match &args.command {
        StoreCommand::DeleteKey(DeleteKeyArgs { key, data }) => {
            let removed = runtime()?.block_on(offline::delete_key(&data.data_dir, key))?;
            let readability = match &removed.unreadable {
                Some(why) => format!("it could not be read: {why}"),
                None => "it could be read".to_owned(),
            };
            writeln!(
                out,
                "removed {key} (revision {}, {} bytes; {readability})",
                removed.revision, removed.bytes
            )?;
            Ok(ExitCode::SUCCESS)
        }
        StoreCommand::Check(StoreCheckArgs { data }) => {
            let (unreadable, objects) = runtime()?.block_on(offline::check(&data.data_dir))?;
            for found in &unreadable {
                writeln!(out, "{}: {}", found.key, found.why)?;
            }
            writeln!(out, "{}, {} cannot be read", counted(objects, "object"), unreadable.len())?;
            Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
