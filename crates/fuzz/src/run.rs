//! Gives inputs to a check until time or rounds are over.

use std::fs;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// How many inputs make a round.
pub const ROUND: u32 = 256;

/// How much processor time one input may take, in an unoptimised build. Time is the thread's own, so that a busy machine
/// changes nothing.
pub const MOST_CPU: Duration = Duration::from_secs(2);

/// How long a run takes without `PORTCULLIS_ROUNDS`, and how many rounds it has at most.
const TIME: Duration = Duration::from_secs(10);
const MOST_ROUNDS: u64 = 100;

/// How long a failing input is made simpler.
const SHRINKING: Duration = Duration::from_secs(20);

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
    while started.elapsed() < TIME && round < MOST_ROUNDS {
        run_round(seed.wrapping_add(round), inputs, &check);
        round += 1;
    }
    println!("{} inputs from seed {seed}", round * u64::from(ROUND));
}

/// The same for so many rounds.
///
/// # Panics
/// As [`run`].
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

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `PORTCULLIS_SEED`, or the same one every time: a test command that fails must fail again. `cargo xtask torture` sets another.
fn first_seed() -> u64 {
    let seed = number("PORTCULLIS_SEED").unwrap_or(1);
    // A check that ends the process (a stack overflow) leaves nothing but this.
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
    let max_shrink_time = u32::try_from(SHRINKING.as_millis()).unwrap_or(u32::MAX);
    let config = Config { cases: ROUND, failure_persistence: None, max_shrink_time, ..Config::default() };
    let result = TestRunner::new_with_rng(config, rng).run(inputs, |input| {
        let before = cpu_time();
        let checked = check(&input);
        let mut used = cpu_time().saturating_sub(before);
        checked.map_err(TestCaseError::fail)?;
        if used > MOST_CPU {
            // Once more: a busy machine may have stolen the time.
            let before = cpu_time();
            let _ = check(&input);
            used = cpu_time().saturating_sub(before);
        }
        if used > MOST_CPU {
            return Err(TestCaseError::fail(format!("{used:?} of processor time for one input")));
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("PORTCULLIS_SEED={seed}: {failure}");
    }
}

/// How long this thread has run on a processor; nothing where the system does not say.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
