//! What is counted about tokens: this crate tells, whoever counts listens.

use std::fmt;
use std::sync::Arc;

/// Something that happened to a service-account token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEvent {
    /// It was looked for among those that were verified a moment ago, and found or not.
    Cached(bool),
    /// It was verified, and found good or not.
    Looked(bool),
    /// It was good, and of this sort.
    Used(TokenUse),
}

/// Sorts of tokens that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenUse {
    /// A token with an extended life, before the time it should have been replaced.
    Valid,
    /// And after it.
    Stale,
    /// A token without an audience.
    Legacy,
    /// A token of a secret that somebody made.
    LegacyManual,
    /// A token of a secret that was made for an account.
    LegacyAuto,
}

/// Hears of tokens.
pub trait Observer: Send + Sync {
    /// Something happened to a token.
    fn token(&self, event: TokenEvent);
}

/// Somebody to tell, or nobody.
#[derive(Clone, Default)]
pub struct Observed(Option<Arc<dyn Observer>>);

impl Observed {
    /// By this one.
    pub fn by(observer: Arc<dyn Observer>) -> Self {
        Observed(Some(observer))
    }

    pub(crate) fn tell(&self, event: TokenEvent) {
        if let Some(observer) = &self.0 {
            observer.token(event);
        }
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}
