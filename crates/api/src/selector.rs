//! Label and field selectors, and the compact [`SelectorFacts`] of an object that they are matched against.

mod facts;
mod fields;
mod labels;
mod parse;

use value::Str;

pub use facts::{FactsRef, SelectorFacts};
pub use fields::{FieldRequirement, FieldSelector, escape_value};
pub use labels::{
    FEW_REQUIREMENTS, LabelOperator, LabelRequirement, LabelSelector, Labels, SortedLabels,
    format_label_selector, validate_label_selector,
};

/// Upper bound of requirements in a request's selector, because each is evaluated for every object.
const MAX_REQUIREMENTS: usize = 1000;

/// Upper bound of the values of all requirements in a request's selector, because a watch holds them.
const MAX_VALUES: usize = 5000;

/// Checks a number of requirements, or fails with the text of a 400.
fn check_requirements(number: usize) -> Result<(), String> {
    if number > MAX_REQUIREMENTS {
        return Err(format!("a selector may have at most {MAX_REQUIREMENTS} requirements"));
    }
    Ok(())
}

/// Checks a number of values, or fails with the text of a 400.
fn check_values(number: usize) -> Result<(), String> {
    if number > MAX_VALUES {
        return Err(format!("a selector may have at most {MAX_VALUES} values in all its requirements"));
    }
    Ok(())
}

/// Bytes of memory of a text, without the allocation that contains its [`Str`].
fn heap_bytes(text: &Str) -> usize {
    if text.is_heap_allocated() { text.len() + 2 * size_of::<usize>() } else { 0 }
}

/// The label and field selector of a LIST or WATCH.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    /// True if both selectors match every object.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// True if both selectors match the object with these facts.
    pub fn matches(&self, facts: FactsRef<'_>) -> bool {
        self.labels.matches(&facts) && self.fields.matches(|field| facts.field(field))
    }
}

#[cfg(test)]
mod tests;
