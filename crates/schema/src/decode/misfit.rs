//! Values of the wrong type: which of them Go's decoder tells of, and how.
//!
//! The decoder reads the text from its beginning. It goes on after most of them and tells of the first; an error of a type's own
//! decoder ends it, and is the one that is told. The walk comes by fields in the order of their names, so what it finds is
//! put in the order of the text afterwards.

use std::borrow::Cow;

/// How many are remembered; whoever has more of them has the rest to read after these.
pub(super) const MOST: usize = 100;

/// What goes before a number in the words of Go's decoder.
const NUMBER: &str = "json: cannot unmarshal number ";

/// A value that is not what the schema says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Where it is, as strict errors print it.
    pub(super) place: String,
    /// What is wrong, in the decoder's words.
    pub(super) words: String,
    /// Whether the decoder stops there.
    pub(super) ends: bool,
}

/// The one that is told, of those in a JSON text that has been read. Without the text it is the first in the order of names.
pub(super) fn told(misfits: &[Misfit], text: &[u8]) -> Option<String> {
    let ends = misfits.iter().any(|misfit| misfit.ends);
    let candidates: Vec<&Misfit> = misfits.iter().filter(|misfit| misfit.ends == ends).collect();
    if text.is_empty() {
        return candidates.first().map(|misfit| misfit.words.clone());
    }
    let places: Vec<&str> = candidates.iter().map(|misfit| misfit.place.as_str()).collect();
    let offsets = value::json::offsets(text, &places);
    let (offset, misfit) = offsets.into_iter().zip(candidates).min_by_key(|(offset, _)| *offset)?;
    Some(as_written(&misfit.words, text.get(offset..).unwrap_or_default()).into_owned())
}

/// The words with a number as it stands in the text that begins with its key: `6e2`, and not what it amounts to.
fn as_written<'a>(words: &'a str, text: &[u8]) -> Cow<'a, str> {
    let written = || {
        let rest = words.strip_prefix(NUMBER)?.split_once(" into ")?.1;
        let quote = text.iter().skip(1).position(|byte| *byte == b'"')?;
        let value = text.get(quote + 2..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = value.iter().take_while(|byte| is_part(byte)).count();
        let number = std::str::from_utf8(value.get(..length)?).ok().filter(|number| !number.is_empty())?;
        Some(format!("{NUMBER}{number} into {rest}"))
    };
    match written() {
        Some(written) if !words.strip_prefix(NUMBER).is_some_and(|rest| rest.starts_with("into ")) => {
            Cow::Owned(written)
        }
        _ => Cow::Borrowed(words),
    }
}
