//! What an operator may know of a policy or webhook in force: what it is, and what it has done so far.
//!
//! It is made when the policy or webhook is compiled and stays with it, so that the figures last as long as it is in force unchanged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use cel::EstimateRange;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use value::text::first_bytes;
use value::{Map, Str, Value, write};

/// The longest error that is kept.
const LONGEST_ERROR: usize = 1024;

/// What is known of one policy, binding or webhook.
#[derive(Debug)]
pub struct Account {
    /// Its uid in the API; empty for one of a manifest file.
    pub uid: Str,
    /// What its expressions may cost together, by the estimate of the compiler.
    pub estimate: EstimateRange,
    hash: [u8; 32],
    /// As canonical JSON, which is the smallest way to keep them.
    rules: Box<[u8]>,
    calls: AtomicU64,
    denials: AtomicU64,
    last_error: Mutex<Option<LastError>>,
}

/// The last thing that went wrong while it was asked. That it refused is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When, on the clock of the [`crate::Meter`].
    pub at: Duration,
    /// What.
    pub message: String,
}

/// What it has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many requests it decided about.
    pub calls: u64,
    /// How many of them it refused.
    pub denials: u64,
    /// The last thing that went wrong.
    pub last_error: Option<LastError>,
}

impl Account {
    /// Of a stored object or a manifest. `decides` is the part of it that decides; the fields `matching` of that part say about
    /// what.
    pub(crate) fn new(object: &Value, decides: &Value, matching: &[&str], estimate: EstimateRange) -> Self {
        let mut rules = Map::new();
        for field in matching {
            if let Some(rule) = decides.get(field).filter(|rule| !rule.is_null()) {
                rules.insert(Str::new(*field), rule.clone());
            }
        }
        Account {
            uid: api::meta::text(object, "uid").into(),
            estimate,
            hash: Sha256::digest(write::to_vec(decides)).into(),
            rules: write::to_vec(&Value::Map(rules)).into(),
            calls: AtomicU64::new(0),
            denials: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    /// `sha256:` over what decides: the same on two servers that decide the same.
    pub fn hash(&self) -> String {
        format!("sha256:{}", HEXLOWER.encode(&self.hash))
    }

    /// Whether the part of an object that decides is what this was made of.
    pub fn is_of(&self, decides: &Value) -> bool {
        let digest: [u8; 32] = Sha256::digest(write::to_vec(decides)).into();
        digest == self.hash
    }

    /// Whether two were made of the same.
    pub fn decides_as(&self, other: &Account) -> bool {
        self.hash == other.hash
    }

    /// What it is about, as it was written: JSON.
    pub fn rules(&self) -> &[u8] {
        &self.rules
    }

    /// What it has done so far.
    pub fn figures(&self) -> Figures {
        Figures {
            calls: self.calls.load(Ordering::Relaxed),
            denials: self.denials.load(Ordering::Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn denied(&self) {
        self.denials.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, why: &str, at: Duration) {
        let message = first_bytes(why, LONGEST_ERROR).to_owned();
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(LastError { at, message });
    }
}

/// What costs nothing.
pub(crate) const FREE: EstimateRange = EstimateRange::exactly(0);

/// The estimates of several expressions together.
pub(crate) fn together(estimates: impl IntoIterator<Item = EstimateRange>) -> EstimateRange {
    estimates.into_iter().fold(FREE, |sum, next| EstimateRange {
        min: sum.min.saturating_add(next.min),
        max: sum.max.saturating_add(next.max),
    })
}
