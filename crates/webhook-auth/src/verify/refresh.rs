//! [`Refresh`]: decides when keys are fetched. No clock: elapsed times go in.

use std::time::Duration;

/// The refresh intervals of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Age after which the next token causes a refresh in the background, so that revoked keys disappear.
    pub after: Duration,
    /// Age after which keys are no longer used, even if no newer ones can be fetched.
    pub max_age: Duration,
    /// The minimum time between two fetches, however many tokens have unknown keys.
    pub interval: Duration,
}

impl Default for Refresh {
    /// Refreshes after five minutes, uses keys for one hour, and fetches at most every ten seconds.
    fn default() -> Self {
        Refresh {
            after: Duration::from_mins(5),
            max_age: Duration::from_hours(1),
            interval: Duration::from_secs(10),
        }
    }
}

/// The reason for looking at the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A token is to be verified.
    Verify,
    /// A token has an unknown key.
    UnknownKey,
}

/// The state of the keys as elapsed times; `None` means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// The time since keys were last fetched successfully.
    pub fetched: Option<Duration>,
    /// The time since the last attempt, successful or not.
    pub tried: Option<Duration>,
}

/// The decision of [`Refresh::decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Use the current keys.
    Use,
    /// Use the current keys and fetch new ones in the background.
    UseAndFetch,
    /// Fetch keys before the token is verified.
    Fetch,
    /// Reject the token: no usable keys are known, and it is too early for another attempt.
    Refuse,
}

impl Refresh {
    /// Decides how to get usable keys. For [`Need::UnknownKey`], [`Action::Use`] means that no fetch is due.
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
