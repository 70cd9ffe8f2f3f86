//! The project's own commands: set-up, test, bench, torture, code generation, tidy checks, checks of commit messages.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

mod bench;
mod codegen;
mod command;
mod commits;
mod setup;
mod stages;
mod test;
mod tidy;
mod torture;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test      set up what the tests need, then check format, lints and architecture, and run every test
  setup     only set up what the tests need (kubectl, the Python client, the CEL conformance data)
  tidy      check the claims of the documents, and the language of the sources
  commits   check commit messages: those of the range that follows, or all new ones
  bench     run the benchmarks and the load run (REFERENCE_URL, REFERENCE_TOKEN: against a reference too)
  torture   run the crash and model tests and the tests of policies that change under load for many rounds (PORTCULLIS_ROUNDS);
            `torture etcd` runs several servers on three etcd members under faults, `torture etcd --planted` shows that it finds bugs
  codegen   write the schema table from the published OpenAPI definitions";

fn main() -> ExitCode {
    match dispatch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no workspace root")?;
    let mut args = env::args().skip(1);
    match args.next().as_deref() {
        Some("test") => test::run(root, args),
        Some("setup" | "set-up") => setup::run(root),
        Some("tidy") => tidy::run(root),
        Some("commits") => commits::run(root, args),
        Some("bench") => bench::run(root, args),
        Some("torture") => torture::run(root, args),
        Some("codegen") => codegen::run(root, args),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("unknown command `{other}`\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}
