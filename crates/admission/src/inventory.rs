//! The inventory entry of a compiled policy, binding or webhook: its identity and its counters, as shown at
//! `/debug/admission`.
//!
//! The entry is created when the policy or webhook is compiled and lives as long as it stays in force
//! unchanged, so its counters start at zero after every change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use cel::EstimateRange;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use value::text::first_bytes;
use value::{Map, Str, Value, write};

/// Longer error messages are truncated to this many bytes.
const MAX_ERROR_BYTES: usize = 1024;

#[derive(Debug)]
pub struct InventoryEntry {
    /// The object's `metadata.uid`; empty for objects from manifest files.
    pub uid: Str,
    /// The compiler's estimate of the total cost of all expressions.
    pub estimate: EstimateRange,
    hash: [u8; 32],
    /// The matching fields as canonical JSON: less memory than a tree for a page that is rarely requested.
    rules: Box<[u8]>,
    calls: AtomicU64,
    denials: AtomicU64,
    last_error: Mutex<Option<LastError>>,
}

/// The last evaluation or call error. A denial is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// Elapsed time on the clock of [`crate::AdmissionMetrics`].
    pub at: Duration,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InventoryCounters {
    /// Calls of a webhook, requests for which a validating policy was evaluated, or invocations of a mutating policy (one for
    /// each binding and parameter object).
    pub calls: u64,
    /// The number of these that denied the request, including denials because of an error.
    pub denials: u64,
    pub last_error: Option<LastError>,
}

impl InventoryEntry {
    /// `content` is the part of `object` that determines decisions (a policy's `spec`, one webhook of a
    /// configuration). The fields `matching` of it are kept for [`InventoryEntry::rules`].
    pub(crate) fn new(object: &Value, content: &Value, matching: &[&str], estimate: EstimateRange) -> Self {
        let mut rules = Map::new();
        for field in matching {
            if let Some(rule) = content.get(field).filter(|rule| !rule.is_null()) {
                rules.insert(Str::new(*field), rule.clone());
            }
        }
        InventoryEntry {
            uid: api::meta::text(object, "uid").into(),
            estimate,
            hash: Sha256::digest(write::to_vec(content)).into(),
            rules: write::to_vec(&Value::Map(rules)).into(),
            calls: AtomicU64::new(0),
            denials: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    /// `sha256:` and the hex digest of the content that determines decisions. Servers with equal hashes
    /// decide alike.
    pub fn hash(&self) -> String {
        format!("sha256:{}", HEXLOWER.encode(&self.hash))
    }

    /// Whether this entry was made from content equal to `content`.
    pub fn was_compiled_from(&self, content: &Value) -> bool {
        let digest: [u8; 32] = Sha256::digest(write::to_vec(content)).into();
        digest == self.hash
    }

    pub fn has_same_content(&self, other: &InventoryEntry) -> bool {
        self.hash == other.hash
    }

    /// The fields that select requests (rules, selectors, match conditions), as JSON.
    pub fn rules(&self) -> &[u8] {
        &self.rules
    }

    pub fn counters(&self) -> InventoryCounters {
        InventoryCounters {
            calls: self.calls.load(Ordering::Relaxed),
            denials: self.denials.load(Ordering::Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_denial(&self) {
        self.denials.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_error(&self, why: &str, at: Duration) {
        let message = first_bytes(why, MAX_ERROR_BYTES).to_owned();
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(LastError { at, message });
    }
}

pub(crate) const ZERO_COST: EstimateRange = EstimateRange::exactly(0);

pub(crate) fn sum_estimates(estimates: impl IntoIterator<Item = EstimateRange>) -> EstimateRange {
    estimates.into_iter().fold(ZERO_COST, |sum, next| EstimateRange {
        min: sum.min.saturating_add(next.min),
        max: sum.max.saturating_add(next.max),
    })
}
