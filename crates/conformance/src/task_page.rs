//! Pages of `docs/` whose commands are run: every `sh` block, in order, in one shell and an empty folder.
//!
//! A `text` block behind an `sh` block is what that block prints: each of its lines must come, in this order, in the output. `…` stands
//! for anything within a line, and alone on a line for any number of lines.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::server::binary;
use crate::{Problem, Result};

/// How long the commands of a page may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// What is printed before the output of each block.
const MARK: &str = "@@ block\n";

/// A block of commands, and what it must print.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The commands.
    pub commands: String,
    /// The lines of the output, if the page shows them.
    pub output: Option<String>,
}

/// The blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text = text.join("\n");
        match language {
            "sh" => blocks.push(Block { commands: text, output: None }),
            "text" => {
                if let Some(block) = blocks.last_mut() {
                    block.output = Some(text);
                }
            }
            _ => {}
        }
    }
    blocks
}

/// The programs of a page that this machine lacks.
pub fn missing(programs: &[&'static str]) -> Vec<&'static str> {
    let is_there = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|found| found.status.success())
    };
    programs.iter().copied().filter(|program| !is_there(program)).collect()
}

/// Runs a page with some words replaced, as ports that may be taken. Says what went wrong, with everything that was printed.
pub fn run(page: &str, replaced: &[(&str, &str)]) -> Result<()> {
    let folder = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).map_err(|e| Problem::at("a folder", e))?;
    std::os::unix::fs::symlink(binary()?, programs.join("portcullis"))
        .map_err(|e| Problem::at("a link", e))?;
    let blocks = blocks(page);
    let mut script = "set -euo pipefail\n".to_owned();
    for block in &blocks {
        script.push_str("printf '@@ block\\n'\n");
        script.push_str(&block.commands);
        script.push('\n');
    }
    let replace =
        |text: &str| replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let (ended_well, printed) = shell(&replace(&script), folder.path(), &programs, PATIENCE)?;
    if !ended_well {
        return Err(Problem::new(format!("the commands of the page fail:\n{printed}")));
    }
    let mut outputs = printed.split(MARK).skip(1);
    for block in &blocks {
        let output = outputs.next().unwrap_or_default();
        if let Some(wanted) = &block.output
            && let Err(line) = shows(output, &replace(wanted))
        {
            let Block { commands, .. } = block;
            return Err(Problem::new(format!("`{line}` does not come of\n{commands}\nbut\n{output}")));
        }
    }
    Ok(())
}

/// Runs a script, and ends everything that it has started: it is the leader of a process group of its own.
fn shell(script: &str, folder: &Path, programs: &Path, patience: Duration) -> Result<(bool, String)> {
    let log = folder.join(".printed");
    let file = std::fs::File::create(&log).map_err(|e| Problem::at("a file", e))?;
    let both = file.try_clone().map_err(|e| Problem::at("a file", e))?;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let work = folder.join("work");
    std::fs::create_dir(&work).map_err(|e| Problem::at("a folder", e))?;
    let mut child = Command::new("bash")
        .args(["-c", script])
        .env("PATH", path)
        .env("HOME", folder)
        .env_remove("KUBECONFIG")
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(both)
        .process_group(0)
        .spawn()
        .map_err(|e| Problem::at("bash", e))?;
    let end = Instant::now() + patience;
    let status = loop {
        match child.try_wait().map_err(|e| Problem::at("bash", e))? {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    // What a page leaves running in the background ends with it.
    let group = format!("kill -KILL -- -{} 2>/dev/null", child.id());
    let _ = Command::new("bash").args(["-c", &group]).status();
    let _ = child.wait();
    let mut printed = std::fs::read_to_string(&log).map_err(|e| Problem::at("a file", e))?;
    let server_log = std::fs::read_to_string(work.join("server.log")).unwrap_or_default();
    let ended_well = status.is_some_and(|status| status.success());
    if !ended_well {
        let tail: Vec<&str> = server_log.lines().rev().take(20).collect();
        printed.push_str("\nserver.log ends with\n");
        printed.push_str(&tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok((ended_well, printed))
}

/// Whether an output has these lines, in this order; otherwise the first that does not come.
fn shows(output: &str, wanted: &str) -> std::result::Result<(), String> {
    let mut lines = output.lines().peekable();
    for line in wanted.lines() {
        if line.trim() == "…" {
            continue;
        }
        if !lines.by_ref().any(|printed| matches(printed, line)) {
            return Err(line.to_owned());
        }
    }
    Ok(())
}

/// Whether a line is as the page shows it, where `…` is anything.
fn matches(printed: &str, shown: &str) -> bool {
    let parts: Vec<&str> = shown.trim_end().split('…').collect();
    let printed = printed.trim_end();
    match parts.as_slice() {
        [only] => printed == *only,
        [first, middle @ .., last] => {
            let Some(mut rest) = printed.strip_prefix(first) else { return false };
            for part in middle {
                let Some(at) = rest.find(part) else { return false };
                rest = rest.get(at + part.len()..).unwrap_or_default();
            }
            rest.ends_with(last)
        }
        [] => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Block, blocks, matches, shell, shows};

    /// It would hang otherwise.
    #[test]
    fn what_a_page_leaves_running_is_ended() {
        let folder = tempfile::TempDir::new().unwrap();
        let (path, short) = (folder.path(), Duration::from_millis(100));
        let (ended_well, printed) = shell("echo a; sleep 1000 & wait", path, path, short).unwrap();
        assert!(!ended_well && printed.starts_with("a\n"), "{printed}");
    }

    #[test]
    fn blocks_are_read_with_what_they_print() {
        let page = "# Page\n```sh\na\nb\n```\ntext\n```text\nout\n```\n```yaml\nx: 1\n```\n```sh\nc\n```\n";
        let block = |commands: &str, output: Option<&str>| Block {
            commands: commands.to_owned(),
            output: output.map(str::to_owned),
        };
        assert_eq!(blocks(page), [block("a\nb", Some("out")), block("c", None)]);
    }

    #[test]
    fn output_is_compared_line_by_line_in_order() {
        assert!(matches("configmap/a created", "configmap/a created"));
        assert!(matches("name-x7 ready 3s", "name-… ready…"));
        assert!(!matches("name-x7 pending", "name-… ready…"));
        assert!(shows("a\nb\nc\n", "a\n…\nc").is_ok());
        assert_eq!(shows("a\nb\n", "b\na"), Err("a".to_owned()));
    }
}
