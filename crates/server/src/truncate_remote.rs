//! What another server says, in as much of it as anybody reads.
//!
//! Webhooks and API servers behind this one say what they like, and as much as an answer may have. Their texts end up in statuses,
//! of which a list may have a hundred, and in stored conditions: they are cut where they come in.

use std::borrow::Cow;

use value::text::first_bytes;

/// The longest answer with objects: as many bytes as a page of them may have.
pub(crate) const MAX_OBJECTS: usize = 64 << 20;

/// The longest text that is passed on.
pub(crate) const MAX_TEXT: usize = 4 << 10;

/// A text of another server, or the beginning of a long one.
pub(crate) fn truncate_remote(text: &str) -> Cow<'_, str> {
    match first_bytes(text, MAX_TEXT) {
        head if head.len() < text.len() => Cow::Owned(format!("{head}...")),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TEXT, truncate_remote};

    #[test]
    fn a_long_text_is_cut_between_characters_and_a_short_one_is_not() {
        let fits = "x".repeat(MAX_TEXT);
        assert_eq!(truncate_remote(&fits), fits);
        assert_eq!(truncate_remote(&format!("{fits}y")), format!("{fits}..."));
        let wide = format!("x{}", "é".repeat(MAX_TEXT));
        assert_eq!(truncate_remote(&wide).len(), MAX_TEXT - 1 + "...".len());
    }
}
