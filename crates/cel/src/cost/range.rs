//! Ranges of sizes and costs, and hints about the sizes of data.

use value::Str;

use crate::types::Type;

/// Lower and upper bound of a size or cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimateRange {
    /// Inclusive lower bound, which may be 0.
    pub min: u64,
    /// Upper bound, inclusive; `u64::MAX` means unbounded.
    pub max: u64,
}

/// Provides the sizes of variables and of the data inside them.
pub trait SizeHints: Sync {
    /// Bounds of the size at `path`: a variable, then field names, `@items`, `@keys` or `@values`. With an empty path
    /// only the type is known.
    fn size(&self, path: &[Str], ty: &Type) -> Option<EstimateRange>;
}

/// Size hints without any information.
#[derive(Clone, Copy, Debug)]
pub struct NoHints;

impl SizeHints for NoHints {
    fn size(&self, _: &[Str], _: &Type) -> Option<EstimateRange> {
        None
    }
}

impl EstimateRange {
    pub(super) const UNKNOWN: EstimateRange = EstimateRange { min: 0, max: u64::MAX };

    /// A range that contains only `size`.
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
    reason = "cel-go estimates with doubles, and casts saturate"
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
