//! The time and the random choices of a run.

use std::time::Instant;

use conformance::random;

/// Counts microseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct RunClock(Instant);

impl RunClock {
    pub fn start() -> RunClock {
        RunClock(Instant::now())
    }

    pub fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Random choices that depend only on the seed.
#[derive(Clone, Debug)]
pub struct Dice(random::Dice);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(random::Dice::new(seed))
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0.roll(sides)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let index = self.index(of.len());
        of.get(index)
    }
}
