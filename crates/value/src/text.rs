//! Small operations on texts: the beginning of a long one, and percent-encoding.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The first `max` bytes of a text, or a few less so that no character is cut.
pub fn first_bytes(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

pub fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Bytes as text in which every one that `keeps` refuses is written as `%XX`. `keeps` must refuse bytes outside ASCII.
pub fn percent_encode(bytes: impl AsRef<[u8]>, keeps: impl Fn(u8) -> bool) -> String {
    let bytes = bytes.as_ref();
    let mut encoded = String::with_capacity(bytes.len());
    for &byte in bytes {
        if keeps(byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The bytes of a text with its escapes (`%XX`) decoded. A percent sign that begins no escape stays as it is;
/// [`bad_percent_escape`] finds such signs.
pub fn percent_decode(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    let Some(first) = bytes.iter().position(|byte| *byte == b'%') else { return Cow::Borrowed(bytes) };
    let mut decoded = Vec::with_capacity(bytes.len());
    let (plain, mut rest) = bytes.split_at(first);
    decoded.extend_from_slice(plain);
    loop {
        match rest {
            [b'%', high, low, after @ ..]
                if let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low)) =>
            {
                decoded.push(high << 4 | low);
                rest = after;
            }
            [byte, after @ ..] => {
                decoded.push(*byte);
                rest = after;
            }
            [] => return Cow::Owned(decoded),
        }
    }
}

/// The first percent sign that begins no escape, with up to two bytes after it, as Go's URL errors quote it.
pub fn bad_percent_escape(text: &str) -> Option<&[u8]> {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = rest.get(at..).unwrap_or_default();
        match rest {
            [_, high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest = after,
            _ => return Some(rest.get(..3).unwrap_or(rest)),
        }
    }
    None
}

/// The value of a hexadecimal digit.
pub fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::{bad_percent_escape, first_bytes, first_chars, percent_decode, percent_encode};

    #[test]
    fn truncation_does_not_split_characters() {
        let cases = [("", 0, ""), ("abc", 2, "ab"), ("abc", 3, "abc"), ("aéb", 2, "a"), ("aéb", 3, "aé")];
        for (text, max, expected) in cases {
            assert_eq!(first_bytes(text, max), expected, "{text} {max}");
        }
        assert_eq!(
            (first_chars("aéb", 2), first_chars("aéb", 3), first_chars("aéb", 9)),
            ("aé", "aéb", "aéb")
        );
    }

    #[test]
    fn percent_escapes_are_decoded_and_invalid_ones_are_reported() {
        for (text, decoded, bad) in [
            ("plain", "plain", None),
            ("a%20b%2F", "a b/", None),
            ("%c3%A9", "é", None),
            ("%", "%", Some("%")),
            ("a%2", "a%2", Some("%2")),
            ("%zz%41", "%zzA", Some("%zz")),
            ("%%41", "%A", Some("%%4")),
            ("100%é", "100%é", Some("%é")),
        ] {
            assert_eq!(String::from_utf8_lossy(&percent_decode(text)), decoded, "{text}");
            assert_eq!(bad_percent_escape(text), bad.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn percent_encoding_round_trips() {
        for text in ["", "a b", "é%", "/?#[]@!$&'()*+,;=", "\u{0}\u{7f}"] {
            let encoded = percent_encode(text, |byte| byte.is_ascii_alphanumeric());
            assert_eq!(&*percent_decode(&encoded), text.as_bytes(), "{text}");
            assert_eq!(bad_percent_escape(&encoded), None);
        }
    }
}
