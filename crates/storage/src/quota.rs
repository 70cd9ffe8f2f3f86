//! The quota of live bytes, and the alarm that is raised when it is exceeded.
//!
//! It counts live records with their keys and a constant overhead for each. History is not counted: it is discarded early enough to
//! stay below a quarter of the quota ([`SpaceQuota::history`]). The alarm is raised when a write does not fit, and cleared when a twentieth
//! of the quota is free again; in between, ordinary writes that need space are rejected, however small they are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::record::WritePriority;

/// Minimum and maximum of the headroom above the quota, which is an eighth of the quota.
const HEADROOM: (u64, u64) = (4 << 20, 256 << 20);

/// Space usage of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of live records, as the quota counts them.
    pub live: u64,
    /// Bytes of the file, or of live records if there is no file.
    pub file: u64,
    /// The quota in bytes, if one is set.
    pub quota: Option<u64>,
    /// Ordinary writes that need space are rejected.
    pub alarm: bool,
}

#[derive(Debug)]
pub(crate) struct SpaceQuota {
    limit: u64,
    /// Live bytes when the store was opened. If that is more than the quota, the headroom starts there, so that a server whose quota was
    /// lowered still starts.
    loaded: AtomicU64,
    alarm: AtomicBool,
}

impl SpaceQuota {
    pub(crate) fn new(limit: u64) -> SpaceQuota {
        SpaceQuota { limit, loaded: AtomicU64::new(0), alarm: AtomicBool::new(false) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that may be written before the records they replaced are discarded.
    pub(crate) fn history(&self) -> u64 {
        self.limit / 4
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.alarm.load(Ordering::Relaxed)
    }

    /// Sets the live bytes of a store that was just loaded.
    pub(crate) fn load(&self, live: u64) {
        self.loaded.store(live, Ordering::Relaxed);
        self.settle(live);
    }

    /// Updates the alarm for the current number of live bytes.
    pub(crate) fn settle(&self, live: u64) {
        if live > self.limit {
            self.raise(live);
        } else if live <= self.low() && self.alarm.swap(false, Ordering::Relaxed) {
            tracing::info!(
                live_bytes = live,
                quota_bytes = self.limit,
                "the store has room again: writes are accepted"
            );
        }
    }

    /// True if a write that changes the live bytes from `live` to `after` fits. Raises the alarm if it does not fit and the store is nearly
    /// full.
    pub(crate) fn admits(&self, priority: WritePriority, live: u64, after: u64) -> bool {
        if after <= live {
            return true;
        }
        let base = self.limit.max(self.loaded.load(Ordering::Relaxed));
        let headroom = (self.limit / 8).clamp(HEADROOM.0, HEADROOM.1);
        let fits = match priority {
            WritePriority::Ordinary => !self.is_raised() && after <= self.limit,
            WritePriority::Essential => after <= base.saturating_add(headroom / 2),
            WritePriority::System => after <= base.saturating_add(headroom),
        };
        // A large write that does not fit must not block small ones that do.
        if !fits && live > self.low() {
            self.raise(live);
        }
        fits
    }

    /// The number of live bytes at which the alarm is cleared.
    fn low(&self) -> u64 {
        self.limit / 20 * 19
    }

    fn raise(&self, live: u64) {
        if !self.alarm.swap(true, Ordering::Relaxed) {
            tracing::error!(
                live_bytes = live,
                quota_bytes = self.limit,
                "the store is full: only deletions, updates that need no space, and writes that free space or run the cluster are accepted; delete objects or raise --quota-backend-bytes"
            );
        }
    }
}

#[cfg(test)]
mod tests;
