//! Reproducible random choices for tests that run for many rounds.

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// With the seed in `PORTCULLIS_SEED`, or 1.
    pub fn from_env() -> Self {
        Dice(env_number("PORTCULLIS_SEED", 1))
    }

    /// A number below `sides`; 0 if there are none.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides.max(1)
    }
}

/// The number in an environment variable; `otherwise` if there is none.
pub fn env_number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
