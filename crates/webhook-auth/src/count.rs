//! [`Counts`]: how many were let in, and how many were not, by reason. [`Mode`]: what a refusal does.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::verify::Reason;

/// What a webhook does about tokens, for a roll-out in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: they are not looked at.
    Off,
    /// They are verified, logged and counted, and every request passes: to see what [`Mode::Require`] would refuse.
    Observe,
    /// Without a good token that fits, a request is refused.
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

/// A mode that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a mode is `off`, `observe` or `require`")]
pub struct UnknownMode;

/// How many requests were accepted, and how many were rejected for which reason. In [`Mode::Observe`] the rejected ones passed.
#[derive(Debug, Default)]
pub struct Counts {
    accepted: AtomicU64,
    rejected: [AtomicU64; Reason::ALL.len()],
}

impl Counts {
    /// How many had a token that fits.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// How many were rejected for this reason.
    pub fn rejected(&self, reason: Reason) -> u64 {
        self.of(reason).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How many were rejected.
    pub fn rejected_in_all(&self) -> u64 {
        Reason::ALL.into_iter().map(|reason| self.rejected(reason)).sum()
    }

    /// One more was accepted.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// One more was rejected.
    pub fn reject(&self, reason: Reason) {
        if let Some(count) = self.of(reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The text that Prometheus reads: every reason, those that never came up too.
    pub fn to_prometheus(&self) -> String {
        let mut out = String::from(
            "# HELP webhook_auth_accepted_total Requests with a token that fits.\n\
             # TYPE webhook_auth_accepted_total counter\n",
        );
        // Writing to a string does not fail.
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
