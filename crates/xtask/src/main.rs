//! Set-up, test, bench, code generation, tidy checks.

use std::env;
use std::path::Path;

use anyhow::{Context, Result, bail};

mod codegen;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no workspace root")?;
    let mut args = env::args().skip(1);
    match args.next().as_deref() {
        Some("codegen") => codegen::run(root, args),
        _ => bail!("usage: cargo xtask codegen"),
    }
}
