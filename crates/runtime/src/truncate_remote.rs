//! Limits the length of texts from webhooks and aggregated API servers.
//!
//! Their messages can be as long as a response. They end up in `Status` objects, of which a list may contain a hundred, and in stored
//! conditions, so they are truncated on arrival.

use std::borrow::Cow;

use value::text::first_bytes;

/// Size limit in bytes of a response that contains objects, equal to that of a list page.
pub const MAX_OBJECTS: usize = 64 << 20;

/// Longest text in bytes that is used unchanged.
pub const MAX_TEXT: usize = 4 << 10;

/// Truncates a text at a character boundary and appends `...` if it exceeds [`MAX_TEXT`].
pub fn truncate_remote(text: &str) -> Cow<'_, str> {
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
