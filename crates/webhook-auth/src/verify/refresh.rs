//! [`Refresh`]: when keys are fetched again. Times go in, what to do comes out.

use std::time::Duration;

/// How old keys may get, and how often they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Keys older than this are fetched again while they are still used, so that those the issuer withdrew go away.
    pub after: Duration,
    /// Keys older than this are not used any more.
    pub max_age: Duration,
    /// However many tokens name unknown keys, keys are not fetched more often than this.
    pub interval: Duration,
}

impl Default for Refresh {
    /// Every five minutes, for an hour without an answer, and at most every ten seconds.
    fn default() -> Self {
        Refresh {
            after: Duration::from_mins(5),
            max_age: Duration::from_hours(1),
            interval: Duration::from_secs(10),
        }
    }
}

/// Why keys are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To verify a token.
    Verify,
    /// A token named a key that is not among them.
    UnknownKey,
}

/// What was done so far, as times since then. `None` if it never was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// How long ago keys were fetched.
    pub fetched: Option<Duration>,
    /// How long ago that was last tried.
    pub tried: Option<Duration>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Use the keys there are.
    Use,
    /// Use the keys there are, and fetch new ones meanwhile.
    UseAndFetch,
    /// Fetch keys first.
    Fetch,
    /// There are no keys that may be used, and it is too early to ask again.
    Refuse,
}

impl Refresh {
    /// What to do.
    pub fn decide(&self, need: Need, refreshed: Refreshed) -> Action {
        let may_ask = refreshed.tried.is_none_or(|ago| ago >= self.interval);
        let usable = refreshed.fetched.filter(|age| *age < self.max_age);
        let Some(age) = usable else {
            return if may_ask { Action::Fetch } else { Action::Refuse };
        };
        match need {
            Need::UnknownKey if may_ask => Action::Fetch,
            Need::Verify if age >= self.after && may_ask => Action::UseAndFetch,
            Need::Verify | Need::UnknownKey => Action::Use,
        }
    }
}
