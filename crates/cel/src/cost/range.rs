//! Ranges of sizes and costs, and what knows the sizes of data.

use value::Str;

use crate::types::Type;

/// The least and the most something may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimateRange {
    /// The least.
    pub min: u64,
    /// The most; `u64::MAX` where there is no bound.
    pub max: u64,
}

/// Knows the sizes of data: of variables and of what is inside them.
pub trait SizeHints: Sync {
    /// The size of what is at `path`: a variable, then field names, `@items`, `@keys`, `@values`. An empty path means only
    /// the type is known.
    fn size(&self, path: &[Str], ty: &Type) -> Option<EstimateRange>;
}

/// Knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoHints;

impl SizeHints for NoHints {
    fn size(&self, _: &[Str], _: &Type) -> Option<EstimateRange> {
        None
    }
}

impl EstimateRange {
    pub(super) const UNKNOWN: EstimateRange = EstimateRange { min: 0, max: u64::MAX };

    /// Exactly so much.
    pub const fn exactly(size: u64) -> EstimateRange {
        EstimateRange { min: size, max: size }
    }

    pub(super) fn add(self, other: EstimateRange) -> EstimateRange {
        EstimateRange { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: EstimateRange) -> EstimateRange {
        EstimateRange { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn scale(self, factor: f64) -> EstimateRange {
        EstimateRange { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(super) fn union(self, other: EstimateRange) -> EstimateRange {
        EstimateRange { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the reference estimates with doubles, and casts saturate"
)]
fn scale(size: u64, factor: f64) -> u64 {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let size = size as f64;
    if size > 0.0 && factor > 0.0 && size > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    let cost = (size * factor).ceil();
    if cost >= END { u64::MAX } else { cost as u64 }
}
