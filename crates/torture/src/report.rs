//! Figures of runs, and files that explain violations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use conformance::{Problem, Result};
use serde::Serialize;

use crate::checker::{Rule, RuleViolation};
use crate::history::{ClientRequest, Outcome, RunHistory, WatchMessage};

/// Changes before and after a violation that are written beside it.
const AROUND: u64 = 20;
/// Violations that are explained with their surroundings, and that are printed.
const EXPLAINED: usize = 20;

/// The result of one run, or of several.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    pub rounds: u64,
    pub faults: BTreeMap<String, u64>,
    /// By verb: acknowledged, refused, unknown.
    pub operations: BTreeMap<&'static str, OutcomeCounts>,
    pub watches: u64,
    pub events: u64,
    pub bookmarks: u64,
    /// Changes in etcd that the answers were compared with.
    pub changes: u64,
    pub violations: Vec<RuleViolation>,
    pub left_out: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct OutcomeCounts {
    pub answered: u64,
    pub refused: u64,
    pub unknown: u64,
}

impl RunReport {
    pub fn count(&mut self, history: &RunHistory) {
        for operation in &history.operations {
            let counts = self.operations.entry(operation.request.verb()).or_default();
            match operation.outcome {
                Outcome::Refused { .. } => counts.refused += 1,
                Outcome::Unknown(_) => counts.unknown += 1,
                _ => counts.answered += 1,
            }
        }
        for stream in &history.streams {
            self.watches += 1;
            for message in &stream.messages {
                match message {
                    WatchMessage::Event { .. } => self.events += 1,
                    WatchMessage::Bookmark { .. } => self.bookmarks += 1,
                }
            }
        }
        self.changes += history.changes.len() as u64;
    }

    /// Adds the figures of another run.
    pub fn add(&mut self, other: RunReport) {
        self.rounds += other.rounds;
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (verb, counts) in other.operations {
            let sum = self.operations.entry(verb).or_default();
            sum.answered += counts.answered;
            sum.refused += counts.refused;
            sum.unknown += counts.unknown;
        }
        self.watches += other.watches;
        self.events += other.events;
        self.bookmarks += other.bookmarks;
        self.changes += other.changes;
        self.violations.extend(other.violations);
        for line in other.left_out {
            if !self.left_out.contains(&line) {
                self.left_out.push(line);
            }
        }
    }

    pub fn broken_rules(&self) -> BTreeSet<Rule> {
        self.violations.iter().map(|violation| violation.rule).collect()
    }

    /// Writes `history.jsonl`, and `violations.txt` if there are any, to a folder.
    pub fn write(&self, folder: &Path, history: &RunHistory) -> Result<()> {
        let failed = |error| Problem::at("the report", error);
        let create = |name: &str| File::create(folder.join(name)).map(BufWriter::new).map_err(failed);
        let mut file = create("history.jsonl")?;
        lines(&mut file, &history.changes)?;
        lines(&mut file, &history.operations)?;
        lines(&mut file, &history.streams)?;
        if self.violations.is_empty() {
            return Ok(());
        }
        let mut file = create("violations.txt")?;
        for violation in &self.violations {
            writeln!(file, "{violation}").map_err(failed)?;
        }
        for violation in self.violations.iter().take(EXPLAINED) {
            explain(&mut file, violation, history)?;
        }
        Ok(())
    }
}

fn lines<T: Serialize>(file: &mut impl Write, items: &[T]) -> Result<()> {
    for item in items {
        let line = serde_json::to_string(item).map_err(|e| Problem::at("the history", e))?;
        writeln!(file, "{line}").map_err(|e| Problem::at("the history", e))?;
    }
    Ok(())
}

/// Writes the changes around a violation, and the requests for the same key around it.
fn explain(file: &mut impl Write, violation: &RuleViolation, history: &RunHistory) -> Result<()> {
    let failed = |error| Problem::at("the report", error);
    writeln!(file, "\n== {violation}").map_err(failed)?;
    if let Some(revision) = violation.revision {
        for change in &history.changes {
            if change.revision.abs_diff(revision) <= AROUND {
                let line = serde_json::to_string(change).map_err(|e| Problem::at("the history", e))?;
                writeln!(file, "{line}").map_err(failed)?;
            }
        }
    }
    let concerns = |request: &ClientRequest| violation.message.contains(request.key());
    let near = |start: u64| violation.at.is_none_or(|at| start.abs_diff(at) < 3_000_000);
    for operation in &history.operations {
        if concerns(&operation.request) && near(operation.start) {
            let line = serde_json::to_string(operation).map_err(|e| Problem::at("the history", e))?;
            writeln!(file, "{line}").map_err(failed)?;
        }
    }
    Ok(())
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rounds: {}", self.rounds)?;
        let total: u64 = self.faults.values().sum();
        writeln!(f, "faults: {total}")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>6} {kind}")?;
        }
        let sum = |counts: &OutcomeCounts| counts.answered + counts.refused + counts.unknown;
        let total: u64 = self.operations.values().map(sum).sum();
        writeln!(f, "operations checked: {total}")?;
        for (verb, OutcomeCounts { answered, refused, unknown }) in &self.operations {
            writeln!(f, "  {verb:<26} {answered:>7} answered {refused:>7} refused {unknown:>6} unknown")?;
        }
        writeln!(f, "watches: {}, {} events, {} bookmarks", self.watches, self.events, self.bookmarks)?;
        writeln!(f, "changes in etcd: {}", self.changes)?;
        for line in &self.left_out {
            writeln!(f, "left out: {line}")?;
        }
        writeln!(f, "violations: {}", self.violations.len())?;
        for violation in self.violations.iter().take(EXPLAINED) {
            writeln!(f, "  {violation}")?;
        }
        Ok(())
    }
}
