//! `cargo xtask torture`: runs the crash, model and fuzz tests, or the faults of etcd, for much longer than `cargo xtask test` does.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{cargo, run as run_command};
use crate::setup;
use crate::stages::Stages;

/// Rounds of each test without `PORTCULLIS_ROUNDS`: some minutes.
const ROUNDS: &str = "500";

/// Rounds of the tests that start servers during requests, or change manifest folders under load.
const STARTS: &str = "100";

/// Rounds of 256 inputs for every reader: about ten minutes each.
const FUZZ: &str = "2000";

/// Without arguments the tests of a single server; `etcd` for several servers on etcd; `etcd --planted` for planted bugs.
pub(crate) fn run(root: &Path, args: impl Iterator<Item = String>) -> Result<()> {
    let args: Vec<String> = args.collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => single_server(root),
        ["etcd"] => etcd_faults(root, false),
        ["etcd", "--planted"] => etcd_faults(root, true),
        _ => bail!("usage: cargo xtask torture [etcd [--planted]]"),
    }
}

/// Runs the harness `torture` with a server of its own. One with planted bugs is built in a folder of its own, so that it is never
/// mistaken for a server to use.
fn etcd_faults(root: &Path, is_planted: bool) -> Result<()> {
    let target = setup::target_folder(root)?;
    let folder = target.join("torture");
    let server_target = if is_planted { folder.join("planted") } else { target.clone() };
    let mut build = cargo(root);
    build.args(["build", "--package", "cli", "--bin", "portcullis", "--target-dir"]).arg(&server_target);
    if is_planted {
        build.args(["--features", "cli/planted-bugs"]);
    }
    run_command(&mut build)?;
    run_command(cargo(root).args(["build", "--package", "torture", "--bin", "torture"]))?;
    let tools = setup::prepare(root)?;
    let mut harness = Command::new(target.join("debug/torture"));
    harness.current_dir(root).envs(tools.env.iter().map(|(name, value)| (name, value)));
    harness.env("PORTCULLIS_BIN", server_target.join("debug/portcullis"));
    if is_planted {
        harness.arg("--planted");
    }
    run_command(harness.arg(&folder))
}

fn single_server(root: &Path) -> Result<()> {
    let rounds = env::var("PORTCULLIS_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let mut stages = Stages::default();
    stages.run("the store's crash model", || {
        run_command(
            cargo(root)
                .args(["test", "--package", "storage", "--test", "store"])
                .env("PORTCULLIS_ROUNDS", &rounds),
        )
    });
    stages.run("killed servers", || {
        run_command(cargo(root).args(["build", "--package", "cli", "--bin", "portcullis"]))?;
        let binary = setup::target_folder(root)?.join("debug/portcullis");
        run_command(
            cargo(root)
                .args(["test", "--package", "conformance", "--test", "crash"])
                .env("PORTCULLIS_BIN", binary)
                .env("PORTCULLIS_ROUNDS", &rounds),
        )
    });
    stages.run("static manifests", || {
        let binary = setup::target_folder(root)?.join("debug/portcullis");
        let names = ["torture::", "start::"];
        run_command(
            cargo(root)
                .args(["test", "--package", "conformance", "--test", "manifests", "--"])
                .args(names)
                .env("PORTCULLIS_BIN", binary)
                .env(
                    "PORTCULLIS_ROUNDS",
                    env::var("PORTCULLIS_ROUNDS").unwrap_or_else(|_| STARTS.to_owned()),
                ),
        )
    });
    stages.run("fuzzing of the readers", || {
        let rounds = env::var("PORTCULLIS_ROUNDS").unwrap_or_else(|_| FUZZ.to_owned());
        // Different inputs in every run.
        let seed = env::var("PORTCULLIS_SEED").unwrap_or_else(|_| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            now.as_secs().to_string()
        });
        for readers in
            [["--package", "fuzz", "--test", "readers"], ["--package", "server", "--lib", "fuzzed"]]
        {
            let mut test = cargo(root);
            test.arg("test").args(readers);
            run_command(test.env("PORTCULLIS_ROUNDS", &rounds).env("PORTCULLIS_SEED", &seed))?;
        }
        Ok(())
    });
    stages.finish()
}
