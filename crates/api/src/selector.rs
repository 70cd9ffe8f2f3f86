//! Label and field selectors, and the compact facts about an object that they are matched against.

mod facts;
mod fields;
mod labels;
mod parse;

pub use facts::{Facts, FactsRef};
pub use fields::{FieldRequirement, FieldSelector, escape_value};
pub use labels::{
    LabelOperator, LabelRequirement, LabelSelector, Labels, format_label_selector, validate_label_selector,
};

/// The most requirements of a selector that is sent with a request. Each is checked for every object.
const MAX_REQUIREMENTS: usize = 1000;

fn check_number(requirements: usize) -> Result<(), String> {
    if requirements > MAX_REQUIREMENTS {
        return Err(format!(
            "a selector may have at most {MAX_REQUIREMENTS} requirements, this one has {requirements}"
        ));
    }
    Ok(())
}

/// What a LIST or WATCH selects: both selectors at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// By label.
    pub labels: LabelSelector,
    /// By field.
    pub fields: FieldSelector,
}

impl Selection {
    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether the object with these facts is selected.
    pub fn matches(&self, facts: FactsRef<'_>) -> bool {
        self.labels.matches(&facts) && self.fields.matches(|field| facts.field(field))
    }
}

#[cfg(test)]
mod tests;
