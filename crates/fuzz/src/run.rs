//! Runs a check on generated inputs until the time or the rounds are over.

use std::fs;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// The number of inputs in one round.
pub const ROUND: u32 = 256;

/// The processor time that one input may take in an unoptimized build. It is the thread's own time, so that a busy machine does not
/// fail a test.
pub const MAX_CPU_TIME: Duration = Duration::from_secs(2);

/// The duration of a run without `PORTCULLIS_ROUNDS`, however fast the reader is.
const RUN_TIME: Duration = Duration::from_secs(10);

/// How long proptest may shrink a failing input.
const SHRINK_TIME: Duration = Duration::from_secs(20);

/// Checks inputs for ten seconds, or for `PORTCULLIS_ROUNDS` rounds if that is set.
///
/// # Panics
/// If a check fails; the message has the seed and the simplest input that fails.
pub fn run<T: std::fmt::Debug>(inputs: &impl Strategy<Value = T>, check: impl Fn(&T) -> Result<(), String>) {
    if let Some(rounds) = number("PORTCULLIS_ROUNDS") {
        return run_rounds(rounds, inputs, check);
    }
    let (seed, started) = (first_seed(), Instant::now());
    let mut round = 0;
    while started.elapsed() < RUN_TIME {
        run_round(seed.wrapping_add(round), inputs, &check);
        round += 1;
    }
    println!("{} inputs from seed {seed}", round * u64::from(ROUND));
}

/// Checks the inputs of this number of rounds.
///
/// # Panics
/// If a check fails, as in [`run`].
pub fn run_rounds<T: std::fmt::Debug>(
    rounds: u64,
    inputs: &impl Strategy<Value = T>,
    check: impl Fn(&T) -> Result<(), String>,
) {
    let seed = first_seed();
    for round in 0..rounds {
        run_round(seed.wrapping_add(round), inputs, &check);
    }
}

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `PORTCULLIS_SEED`, or 1, so that a failing test fails again. `cargo xtask torture` sets a new one every time.
fn first_seed() -> u64 {
    let seed = number("PORTCULLIS_SEED").unwrap_or(1);
    // Printed first: a check that aborts the process, by a stack overflow, prints nothing else.
    println!("PORTCULLIS_SEED={seed}");
    seed
}

#[expect(clippy::panic, reason = "a failed test fails by panicking")]
fn run_round<T: std::fmt::Debug>(
    seed: u64,
    inputs: &impl Strategy<Value = T>,
    check: &impl Fn(&T) -> Result<(), String>,
) {
    let mut bytes = [0; 32];
    for (to, from) in bytes.iter_mut().zip(seed.to_le_bytes()) {
        *to = from;
    }
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let max_shrink_time = u32::try_from(SHRINK_TIME.as_millis()).unwrap_or(u32::MAX);
    let config = Config { cases: ROUND, failure_persistence: None, max_shrink_time, ..Config::default() };
    let result = TestRunner::new_with_rng(config, rng).run(inputs, |input| {
        let before = cpu_time();
        let checked = check(&input);
        let mut used = cpu_time().saturating_sub(before);
        checked.map_err(TestCaseError::fail)?;
        if used > MAX_CPU_TIME {
            // Measured again: on a busy machine, the first measurement may be wrong.
            let before = cpu_time();
            let _ = check(&input);
            used = cpu_time().saturating_sub(before);
        }
        if used > MAX_CPU_TIME {
            return Err(TestCaseError::fail(format!("{used:?} of processor time for one input")));
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("PORTCULLIS_SEED={seed}: {failure}");
    }
}

/// The processor time of this thread; zero on systems without `/proc/thread-self/schedstat`.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
