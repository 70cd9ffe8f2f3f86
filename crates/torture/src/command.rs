//! The command `torture`, which `cargo xtask torture etcd` starts.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conformance::etcd_process::etcd_program;
use conformance::random::env_number;
use conformance::server::binary;
use conformance::{Problem, Result};

use crate::faults::{FaultKind, FaultLengths};
use crate::planted::{PLANTED_BUGS, PlantedBug, VARIABLE};
use crate::report::RunReport;
use crate::run::{RunConfig, run, run_folder};

/// Rounds without `PORTCULLIS_ROUNDS`: about an hour.
const ROUNDS: u64 = 300;
/// Rounds on one cluster. Then the history is checked, and the next cluster begins with the next seed.
const ROUNDS_PER_CLUSTER: u64 = 30;
/// Servers of a cluster.
const SERVERS: usize = 3;
/// Rounds and attempts to show a planted bug.
const PLANTED_ROUNDS: u64 = 3;
const PLANTED_ATTEMPTS: u64 = 4;

/// Runs the command with its arguments: `[--planted] FOLDER`. The folder gets data, logs and reports.
pub async fn run_command(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--planted", folder] => Box::pin(planted(Path::new(folder))).await,
        [folder] if !folder.starts_with('-') => Box::pin(torture(Path::new(folder))).await,
        _ => Err(Problem::new("usage: torture [--planted] FOLDER")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

/// The kinds that `PORTCULLIS_FAULTS` lists, separated by commas; all without it.
fn fault_kinds() -> Result<Vec<FaultKind>> {
    let Ok(names) = env::var("PORTCULLIS_FAULTS") else { return Ok(FaultKind::ALL.to_vec()) };
    let parse = |name: &str| {
        let kind = FaultKind::ALL.into_iter().find(|kind| format!("{kind:?}") == name);
        kind.ok_or_else(|| {
            Problem::new(format!("PORTCULLIS_FAULTS has `{name}`; it may have {:?}", FaultKind::ALL))
        })
    };
    names.split(',').map(str::trim).map(parse).collect()
}

/// All rounds, without planted bugs. False if a rule was broken.
async fn torture(folder: &Path) -> Result<bool> {
    let Some(etcd) = etcd_program() else { return Ok(true) };
    let rounds = env_number("PORTCULLIS_ROUNDS", ROUNDS);
    let seed = env_number("PORTCULLIS_SEED", 1);
    let faults = fault_kinds()?;
    let mut total = RunReport::default();
    let mut left = rounds;
    let mut cluster = 0;
    while left > 0 {
        let config = RunConfig {
            etcd: etcd.clone(),
            binary: binary()?,
            folder: run_folder(folder, &format!("cluster-{cluster}"))?,
            servers: SERVERS,
            rounds: left.min(ROUNDS_PER_CLUSTER),
            seed: seed.wrapping_add(cluster),
            faults: faults.clone(),
            lengths: FaultLengths::Mixed,
            environment: Vec::new(),
        };
        let report = Box::pin(run(&config)).await?;
        let changes = report.changes;
        println!(
            "PORTCULLIS_SEED={}: {} rounds, {changes} changes in etcd, {} violations",
            config.seed,
            config.rounds,
            report.violations.len()
        );
        if report.violations.is_empty() {
            // Nothing in it needs an explanation.
            let _ = std::fs::remove_dir_all(&config.folder);
        } else {
            println!("see {}", config.folder.join("violations.txt").display());
        }
        left -= config.rounds;
        cluster += 1;
        total.add(report);
    }
    println!("{total}");
    Ok(total.violations.is_empty())
}

/// Shows that the checker finds every planted bug. False if it does not find one.
async fn planted(folder: &Path) -> Result<bool> {
    let Some(etcd) = etcd_program() else { return Ok(true) };
    let binary = binary()?;
    let mut found_all = true;
    for bug in PLANTED_BUGS {
        found_all &= Box::pin(planted_bug(&etcd, &binary, folder, bug)).await?;
    }
    Ok(found_all)
}

async fn planted_bug(etcd: &str, binary: &Path, folder: &Path, bug: PlantedBug) -> Result<bool> {
    let seed = env_number("PORTCULLIS_SEED", 1);
    for attempt in 0..PLANTED_ATTEMPTS {
        let folder: PathBuf = run_folder(folder, &format!("planted-{}", bug.name))?;
        let config = RunConfig {
            etcd: etcd.to_owned(),
            binary: binary.to_owned(),
            folder,
            servers: 2,
            rounds: PLANTED_ROUNDS,
            seed: seed.wrapping_add(attempt),
            faults: bug.faults.to_vec(),
            lengths: FaultLengths::Short,
            environment: vec![(VARIABLE.to_owned(), bug.name.to_owned())],
        };
        let report = Box::pin(run(&config)).await?;
        let of_rule: Vec<_> = report.violations.iter().filter(|found| found.rule == bug.breaks).collect();
        if let Some(first) = of_rule.first() {
            println!(
                "{}: found with seed {} ({} violations of {} rules, {} of {}), such as:\n  {first}",
                bug.name,
                seed.wrapping_add(attempt),
                report.violations.len(),
                report.broken_rules().len(),
                of_rule.len(),
                bug.breaks
            );
            return Ok(true);
        }
        let broken = report.broken_rules();
        println!("{}: attempt {attempt}: {} is not broken; broken: {broken:?}", bug.name, bug.breaks);
    }
    println!("{}: NOT FOUND", bug.name);
    Ok(false)
}
