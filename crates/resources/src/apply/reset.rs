//! Fields that a write through some door cannot set, because the kind's strategy puts the old value back: nobody comes to own
//! them there.

use super::element::Element;
use super::set::FieldSet;

/// Which fields of a comparison or a configuration count.
#[derive(Debug, Default)]
pub enum Reset {
    /// All.
    #[default]
    Nothing,
    /// All but these and what is below them.
    Without(FieldSet),
    /// Only what is below one of these paths; `None` is any element.
    Only(&'static [&'static [Option<&'static str>]]),
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
            Reset::Only(patterns) => keep(set, patterns),
        }
    }
}

fn keep(set: &mut FieldSet, patterns: &[&[Option<&'static str>]]) {
    set.retain(|entry| {
        let mut below: Vec<&[Option<&'static str>]> = Vec::new();
        for pattern in patterns {
            let Some((first, rest)) = pattern.split_first() else { continue };
            let fits = match (first, &entry.element) {
                (None, _) => true,
                (Some(wanted), Element::Field(name)) => name == wanted,
                _ => false,
            };
            if fits {
                below.push(rest);
            }
        }
        if below.is_empty() {
            return false;
        }
        if !below.iter().any(|pattern| pattern.is_empty()) {
            keep(&mut entry.below, &below);
        }
        true
    });
}
