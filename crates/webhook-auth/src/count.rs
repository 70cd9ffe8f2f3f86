//! [`Counts`]: accepted and rejected requests by reason. [`Mode`]: whether rejected requests are denied.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::verify::Reason;

/// How a webhook treats tokens, for a gradual rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Tokens are ignored, and every request passes.
    Off,
    /// Tokens are verified, logged and counted, but every request passes: shows what [`Mode::Require`] would
    /// reject.
    Observe,
    /// Requests without a valid and matching token are rejected.
    #[default]
    Require,
}

impl std::str::FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "off" => Ok(Mode::Off),
            "observe" => Ok(Mode::Observe),
            "require" => Ok(Mode::Require),
            _ => Err(UnknownMode),
        }
    }
}

/// An unknown mode name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a mode is `off`, `observe` or `require`")]
pub struct UnknownMode;

/// Counters of accepted requests, and of rejected ones by reason. In [`Mode::Observe`], rejected requests
/// passed.
#[derive(Debug, Default)]
pub struct Counts {
    accepted: AtomicU64,
    rejected: [AtomicU64; Reason::ALL.len()],
}

impl Counts {
    /// Requests with a valid and matching token.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Requests rejected for this reason.
    pub fn rejected(&self, reason: Reason) -> u64 {
        self.of(reason).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Rejected requests, all reasons together.
    pub fn rejected_in_all(&self) -> u64 {
        Reason::ALL.into_iter().map(|reason| self.rejected(reason)).sum()
    }

    /// Counts an accepted request.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a rejected request.
    pub fn reject(&self, reason: Reason) {
        if let Some(count) = self.of(reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counters in the Prometheus text format. Every reason is included, even if its count is zero.
    pub fn to_prometheus(&self) -> String {
        let mut out = String::from(
            "# HELP webhook_auth_accepted_total Requests with a token that fits.\n\
             # TYPE webhook_auth_accepted_total counter\n",
        );
        // Writing to a string cannot fail.
        let _ = writeln!(out, "webhook_auth_accepted_total {}", self.accepted());
        out.push_str(
            "# HELP webhook_auth_rejected_total Requests without one, by reason; in mode observe they passed.\n\
             # TYPE webhook_auth_rejected_total counter\n",
        );
        for reason in Reason::ALL {
            let _ = writeln!(
                out,
                "webhook_auth_rejected_total{{reason=\"{}\"}} {}",
                reason.as_str(),
                self.rejected(reason)
            );
        }
        out
    }

    fn of(&self, reason: Reason) -> Option<&AtomicU64> {
        let at = Reason::ALL.iter().position(|known| *known == reason)?;
        self.rejected.get(at)
    }
}
