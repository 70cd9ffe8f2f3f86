//! `cargo xtask commits [RANGE]`: commit messages follow the rules of `CONTRIBUTING.md`, as far as a machine can tell.
//!
//! A subject is one line of at most 72 characters in the imperative mood, without a full stop, and the line after it is empty.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::output;

/// Commits up to this one are older than the rules and are not checked.
const BASE: &str = "2533c3879fb238036c48b668d117d32a5d2288c4";

const MAX_SUBJECT_CHARS: usize = 72;

/// First words that are no verb in the imperative mood and that [`mood`] does not recognize by their ending.
const NOT_IMPERATIVE: [&str; 43] = [
    "a", "all", "an", "and", "another", "any", "became", "began", "both", "broke", "built", "did", "each",
    "every", "found", "gave", "got", "had", "he", "how", "i", "if", "it", "kept", "made", "more", "no",
    "one", "ran", "sent", "some", "that", "the", "there", "took", "told", "we", "were", "what", "when",
    "which", "who", "wrote",
];

/// Verbs that end like another form of a verb.
const IMPERATIVE: [&str; 21] = [
    "alias", "bias", "bleed", "breed", "bring", "canvas", "embed", "exceed", "feed", "focus", "need", "ping",
    "proceed", "ring", "seed", "shed", "speed", "spring", "string", "swing", "succeed",
];

/// One commit as `git log` prints it.
#[derive(Debug, PartialEq)]
struct Commit<'a> {
    hash: &'a str,
    message: &'a str,
}

/// Checks the commits of `RANGE`, or those after [`BASE`].
pub(crate) fn run(root: &Path, mut args: impl Iterator<Item = String>) -> Result<()> {
    let range = match args.next() {
        Some(range) => range,
        None => match default_range(root) {
            Some(range) => range,
            None => {
                println!("commits: not checked: this is not a git repository, or git is missing");
                return Ok(());
            }
        },
    };
    let log = output(git(root).args(["log", "-z", "--no-merges", "--format=%H%n%B", &range, "--"]))?;
    let commits = parse(&log);
    let complaints: Vec<String> = commits.iter().flat_map(check).collect();
    if complaints.is_empty() {
        println!("commits: {} in {range}", commits.len());
        return Ok(());
    }
    for complaint in &complaints {
        println!("commits: {complaint}");
    }
    bail!("{} problems in the messages of {range}; CONTRIBUTING.md has the rules", complaints.len())
}

/// The commits after [`BASE`]. In a shallow clone without it, all that are there: they are newer. `None` outside a repository.
fn default_range(root: &Path) -> Option<String> {
    let answers = |args: &[&str]| output(git(root).args(args)).is_ok();
    if !answers(&["rev-parse", "--verify", "--quiet", "HEAD"]) {
        return None;
    }
    if answers(&["cat-file", "-e", &format!("{BASE}^{{commit}}")]) {
        return Some(format!("{BASE}..HEAD"));
    }
    println!("commits: a shallow clone without {BASE}: checking only the commits that it has");
    Some("HEAD".to_owned())
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    command
}

/// Splits the output of `git log -z --format=%H%n%B`.
fn parse(log: &str) -> Vec<Commit<'_>> {
    log.split('\0')
        .filter_map(|entry| entry.split_once('\n'))
        .map(|(hash, message)| Commit { hash, message: message.trim_end() })
        .collect()
}

fn check(commit: &Commit<'_>) -> Vec<String> {
    let mut lines = commit.message.lines();
    let subject = lines.next().unwrap_or_default();
    let short = commit.hash.get(..10).unwrap_or(commit.hash);
    let complain = |why: String| format!("{short} `{subject}`: {why}");
    let mut complaints = Vec::new();
    let chars = subject.chars().count();
    if subject.trim().is_empty() {
        complaints.push(complain("the subject is empty".to_owned()));
    }
    if chars > MAX_SUBJECT_CHARS {
        complaints.push(complain(format!("the subject has {chars} characters; at most {MAX_SUBJECT_CHARS}")));
    }
    if subject.ends_with(['.', ';', ',', ':']) {
        complaints.push(complain("the subject ends with a punctuation mark".to_owned()));
    }
    if lines.next().is_some_and(|second| !second.trim().is_empty()) {
        complaints.push(complain("the line after the subject is not empty".to_owned()));
    }
    complaints.extend(mood(subject).map(complain));
    complaints
}

/// Complains of a subject whose first word, after the components before a colon, is no verb in the imperative mood.
fn mood(subject: &str) -> Option<String> {
    if subject.starts_with("fixup!") || subject.starts_with("squash!") || subject.starts_with("WIP") {
        return Some("the commit is not finished".to_owned());
    }
    let summary = subject.split_once(": ").map_or(subject, |(_, summary)| summary);
    let word = summary.split_whitespace().next().unwrap_or_default();
    let first = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let other_form =
        first.ends_with("ed") || first.ends_with("ing") || (first.ends_with('s') && !first.ends_with("ss"));
    let refused =
        NOT_IMPERATIVE.contains(&first.as_str()) || (other_form && !IMPERATIVE.contains(&first.as_str()));
    refused.then(|| format!("`{word}` is no verb in the imperative mood, such as `add` or `refuse`"))
}
