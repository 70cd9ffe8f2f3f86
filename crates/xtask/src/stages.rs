//! The stages of a command: each is timed, later stages run even if one fails, and the last lines summarize all.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The stages that ran so far.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    done: Vec<CheckStage>,
}

#[derive(Debug)]
struct CheckStage {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

impl Stages {
    /// Runs one stage. Returns its result, or `None` if it failed.
    pub(crate) fn run<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("==> {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        let (made, failure) = match result {
            Ok(made) => (Some(made), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        match &failure {
            None => println!("==> {name}: {:.1} s", took.as_secs_f64()),
            Some(failure) => println!("==> {name}: FAILED after {:.1} s: {failure}", took.as_secs_f64()),
        }
        self.done.push(CheckStage { name, took, failure });
        made
    }

    /// Prints the seconds of each stage. It is an error if one of them failed.
    pub(crate) fn finish(self) -> Result<()> {
        let total: Duration = self.done.iter().map(|stage| stage.took).sum();
        println!("\nseconds  stage");
        for stage in &self.done {
            let failed = if stage.failure.is_some() { "  FAILED" } else { "" };
            println!("{:>7.1}  {}{failed}", stage.took.as_secs_f64(), stage.name);
        }
        println!("{:>7.1}  in all", total.as_secs_f64());
        let failed: Vec<_> =
            self.done.iter().filter(|stage| stage.failure.is_some()).map(|stage| stage.name).collect();
        if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
    }
}
