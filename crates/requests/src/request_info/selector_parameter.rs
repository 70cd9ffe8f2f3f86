//! [`SelectorParameter`]: a selector in the query of a request.

use std::sync::{Arc, OnceLock};

use api::selector::{FieldSelector, LabelSelector};

/// A selector that is parsed at most once for a request, although authorization and handlers read it. Clones share the result.
#[derive(Clone, Debug)]
pub struct SelectorParameter<S> {
    text: Arc<str>,
    parsed: Arc<OnceLock<Result<S, String>>>,
}

impl<S> SelectorParameter<S> {
    pub fn new(text: &str) -> Self {
        SelectorParameter { text: text.into(), parsed: Arc::default() }
    }

    /// The text as the client sent it; empty if it sent none.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl SelectorParameter<LabelSelector> {
    /// The selector, or why it is invalid.
    pub fn parsed(&self) -> &Result<LabelSelector, String> {
        self.parsed.get_or_init(|| LabelSelector::parse(&self.text))
    }
}

impl SelectorParameter<FieldSelector> {
    /// The selector, or why it is invalid.
    pub fn parsed(&self) -> &Result<FieldSelector, String> {
        self.parsed.get_or_init(|| FieldSelector::parse(&self.text))
    }
}

impl<S> Default for SelectorParameter<S> {
    fn default() -> Self {
        SelectorParameter::new("")
    }
}

/// The text determines the selector.
impl<S> PartialEq for SelectorParameter<S> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<S> Eq for SelectorParameter<S> {}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_selector_is_parsed_once_for_all_clones() {
        let parameter = SelectorParameter::<LabelSelector>::new("a in (b,c)");
        let clone = parameter.clone();
        assert!(ptr::eq(parameter.parsed(), clone.parsed()));
        assert_eq!(clone.parsed().as_ref().map(ToString::to_string), Ok("a in (b,c)".to_owned()));
        let invalid = SelectorParameter::<FieldSelector>::new("a");
        assert!(ptr::eq(invalid.parsed(), invalid.clone().parsed()) && invalid.parsed().is_err());
    }
}
