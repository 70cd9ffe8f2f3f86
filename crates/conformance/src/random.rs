//! Reproducible random choices for tests that run for many rounds.

pub use fuzz::Dice;

/// The number in an environment variable; `otherwise` if there is none.
pub fn env_number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
