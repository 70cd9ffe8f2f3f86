//! Events about service account tokens, for metrics.

use std::fmt;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEvent {
    /// Looked up in the cache of verified tokens; true if found.
    Cached(bool),
    /// Verified; true if valid.
    Verified(bool),
    /// A valid token of this type was used.
    Used(TokenUse),
}

/// Token types that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenUse {
    /// Extended lifetime, used before the time at which it should have been refreshed.
    Valid,
    /// Extended lifetime, used after that time.
    Stale,
    /// A token without an audience.
    Legacy,
    /// A token from a manually created secret.
    LegacyManual,
    /// A token from an automatically created secret.
    LegacyAuto,
}

pub trait TokenObserver: Send + Sync {
    fn token(&self, event: TokenEvent);
}

/// An optional observer; without one, events are dropped.
#[derive(Clone, Default)]
pub struct OptionalObserver(Option<Arc<dyn TokenObserver>>);

impl OptionalObserver {
    pub fn by(observer: Arc<dyn TokenObserver>) -> Self {
        OptionalObserver(Some(observer))
    }

    pub(crate) fn notify(&self, event: TokenEvent) {
        if let Some(observer) = &self.0 {
            observer.token(event);
        }
    }
}

impl fmt::Debug for OptionalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}
