//! `cargo xtask test`: everything that must hold, in one command.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{cargo, find, run as run_command};
use crate::commits;
use crate::setup::{self, Tools};
use crate::stages::Stages;
use crate::tidy;

/// Further arguments go to the test runner.
pub(crate) fn run(root: &Path, args: impl Iterator<Item = String>) -> Result<()> {
    let filter: Vec<String> = args.collect();
    let target = setup::target_folder(root)?;
    let mut stages = Stages::default();
    let tools = stages.run("set-up", || setup::prepare(root));
    stages.run("format", || run_command(cargo(root).args(["fmt", "--all", "--check"])));
    stages.run("lints", || {
        run_command(cargo(root).args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
    stages.run("tidy", || tidy::run(root));
    stages.run("commits", || commits::run(root, iter::empty()));
    let built = stages.run("build", || {
        // Binaries and tests together, so that both are built from the same artifacts, and the next stage measures tests alone.
        run_command(cargo(root).args(["build", "--quiet", "--workspace", "--bins", "--tests"]))
    });
    match (&tools, built) {
        (Some(tools), Some(())) => {
            let score = target.join("conformance-score.txt");
            let _ = fs::remove_file(&score);
            stages.run("tests", || {
                run_command(tests(root, &target, tools).args(&filter).env("PORTCULLIS_SCORE", &score))
            });
            println!("{}", conformance_score(&fs::read_to_string(&score).unwrap_or_default()));
            stages.run("documentation tests", || {
                run_command(cargo(root).args(["test", "--quiet", "--workspace", "--doc"]))
            });
        }
        _ => {
            stages.run::<()>("tests", || bail!("not run, because a stage before failed"));
        }
    }
    for line in tools.iter().flat_map(|tools| &tools.left_out) {
        println!("left out: {line}");
    }
    stages.finish()
}

/// Adds up the lines `PASSED of TOTAL SCRIPT` that the request scripts wrote; of a script that ran again, the last one.
fn conformance_score(lines: &str) -> String {
    let mut scripts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for line in lines.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        if let [passed, "of", total, script] = words[..]
            && let (Ok(passed), Ok(total)) = (passed.parse(), total.parse())
        {
            scripts.insert(script, (passed, total));
        }
    }
    let passed: u32 = scripts.values().map(|(passed, _)| passed).sum();
    let total: u32 = scripts.values().map(|(_, total)| total).sum();
    let scripts = scripts.len();
    format!("conformance score: {passed} of {total} steps of {scripts} scripts equal the recorded answers")
}

/// A test that fails under load only is named at the end of the output instead of failing the run.
const RETRIES: &str = "--retries=2";

/// The test runner, with the environment variables for the tools that were set up.
fn tests(root: &Path, target: &Path, tools: &Tools) -> Command {
    let mut command = cargo(root);
    if find("cargo-nextest").is_some() {
        command.args(["nextest", "run", "--workspace", "--no-fail-fast", "--status-level=fail"]);
        command.args([RETRIES, "--final-status-level=flaky"]);
    } else {
        command.args(["test", "--quiet", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]);
    }
    command.env("PORTCULLIS_BIN", target.join("debug/portcullis"));
    command.envs(tools.env.iter().map(|(name, value)| (name, value)));
    command
}

#[cfg(test)]
mod tests {
    use super::conformance_score;

    #[test]
    fn conformance_score_sums_the_scores_of_all_scripts() {
        let line = conformance_score("52 of 52 access\n39 of 42 tables\n40 of 42 tables\n");
        assert_eq!(line, "conformance score: 92 of 94 steps of 2 scripts equal the recorded answers");
    }
}
