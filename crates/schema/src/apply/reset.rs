//! Fields that a write through some door cannot set, because the kind's strategy puts the old value back: nobody comes to own
//! them there.

use super::set::FieldSet;

/// Which fields of a comparison or a configuration count.
#[derive(Debug, Default)]
pub enum Reset {
    /// All.
    #[default]
    Nothing,
    /// All but these and what is below them.
    Without(FieldSet),
}

impl Reset {
    /// All but these paths, as `["spec", "metadata.labels"]`.
    pub fn without(paths: &[&str]) -> Self {
        Reset::Without(FieldSet::of(paths))
    }

    /// Takes away what does not count.
    pub(super) fn filter(&self, set: &mut FieldSet) {
        match self {
            Reset::Nothing => {}
            Reset::Without(reset) => set.subtract_with_below(reset),
        }
    }
}
