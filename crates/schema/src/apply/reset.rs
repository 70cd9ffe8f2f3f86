//! Fields that a write to a resource or subresource cannot set because the kind's strategy restores the old value. Such a write does
//! not change their ownership.

use super::set::FieldSet;

/// The fields to ignore in comparisons and configurations.
#[derive(Debug, Default)]
pub enum Reset {
    /// Ignores no fields at all.
    #[default]
    Nothing,
    /// Ignores these fields and everything below them.
    Without(FieldSet),
}

impl Reset {
    /// Ignores these paths, such as `["spec", "metadata.labels"]`.
    pub fn without(paths: &[&str]) -> Self {
        Reset::Without(FieldSet::of(paths))
    }

    /// Removes the ignored fields from `set`.
    pub(super) fn filter(&self, set: &mut FieldSet) {
        match self {
            Reset::Nothing => {}
            Reset::Without(reset) => set.subtract_with_below(reset),
        }
    }
}
