//! `cargo xtask bench`: the engine's benchmarks, then the load run against the release binary.

use std::path::Path;

use anyhow::Result;

use crate::command::{cargo, run as run_command};
use crate::setup;
use crate::stages::Stages;

/// Runs both parts, or only `engine` or `load`.
pub(crate) fn run(root: &Path, args: impl Iterator<Item = String>) -> Result<()> {
    let wanted: Vec<String> = args.collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let mut stages = Stages::default();
    if wants("engine") {
        stages.run("engine", || {
            run_command(cargo(root).args(["bench", "--workspace", "--exclude", "conformance", "--benches"]))
        });
    }
    if wants("load") {
        stages.run("load", || {
            run_command(cargo(root).args(["build", "--release", "--package", "cli", "--bin", "portcullis"]))?;
            let binary = setup::target_folder(root)?.join("release/portcullis");
            let tools = setup::prepare(root)?;
            run_command(
                cargo(root)
                    .args(["run", "--release", "--quiet", "--package", "conformance", "--bin", "load"])
                    .envs(tools.env.iter().map(|(name, value)| (name, value)))
                    .env("PORTCULLIS_BIN", binary),
            )
        });
    }
    stages.finish()
}
