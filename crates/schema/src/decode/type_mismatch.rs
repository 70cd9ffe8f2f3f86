//! Selects the type error that Go's decoder would report.
//!
//! Go's decoder reads the text from its start. It continues after most type errors and reports the first one; an error of a type's own
//! decoder stops it and is reported instead. Our walk visits fields in the order of their names, so its errors are sorted by text
//! offset afterwards.

use std::borrow::Cow;

/// Limit on recorded type errors.
pub(super) const MAX_MISMATCHES: usize = 100;

/// Prefix of Go's error for numbers.
const NUMBER: &str = "json: cannot unmarshal number ";

/// A value that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    /// Its path, formatted as in strict errors.
    pub(super) path: String,
    /// The message of Go's decoder.
    pub(super) message: String,
    /// Whether the decoder stops there.
    pub(super) ends: bool,
}

/// The error to report: the first in the JSON `text`, or, without a text, the first in the order of names.
pub(super) fn first_error(mismatches: &[TypeMismatch], text: &[u8]) -> Option<String> {
    let ends = mismatches.iter().any(|mismatch| mismatch.ends);
    let candidates: Vec<&TypeMismatch> = mismatches.iter().filter(|mismatch| mismatch.ends == ends).collect();
    if text.is_empty() {
        return candidates.first().map(|mismatch| mismatch.message.clone());
    }
    let paths: Vec<&str> = candidates.iter().map(|mismatch| mismatch.path.as_str()).collect();
    let offsets = value::json::offsets(text, &paths);
    let (offset, mismatch) = offsets.into_iter().zip(candidates).min_by_key(|(offset, _)| *offset)?;
    Some(as_written(&mismatch.message, text.get(offset..).unwrap_or_default()).into_owned())
}

/// Replaces the number in the message by its literal, such as `6e2`, in `text`, which starts with the number's key.
fn as_written<'a>(message: &'a str, text: &[u8]) -> Cow<'a, str> {
    let written = || {
        let rest = message.strip_prefix(NUMBER)?.split_once(" into ")?.1;
        let quote = text.iter().skip(1).position(|byte| *byte == b'"')?;
        let value = text.get(quote + 2..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = value.iter().take_while(|byte| is_part(byte)).count();
        let number = std::str::from_utf8(value.get(..length)?).ok().filter(|number| !number.is_empty())?;
        Some(format!("{NUMBER}{number} into {rest}"))
    };
    match written() {
        Some(written) if !message.strip_prefix(NUMBER).is_some_and(|rest| rest.starts_with("into ")) => {
            Cow::Owned(written)
        }
        _ => Cow::Borrowed(message),
    }
}
