//! Label and field selectors, and the compact [`Facts`] of an object that they are matched against.

mod facts;
mod fields;
mod labels;
mod parse;

pub use facts::{Facts, FactsRef};
pub use fields::{FieldRequirement, FieldSelector, escape_value};
pub use labels::{
    LabelOperator, LabelRequirement, LabelSelector, Labels, format_label_selector, validate_label_selector,
};

/// Upper bound of requirements in a request's selector, because each is evaluated for every object.
const MAX_REQUIREMENTS: usize = 1000;

fn check_number(requirements: usize) -> Result<(), String> {
    if requirements > MAX_REQUIREMENTS {
        return Err(format!(
            "a selector may have at most {MAX_REQUIREMENTS} requirements, this one has {requirements}"
        ));
    }
    Ok(())
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
