//! Base64 as Go's standard decoder reads it: line breaks and left-over bits are ignored, and errors give the byte offset.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The canonical form if `text` is not canonical, or the offset of the first invalid byte.
pub(super) fn canonical(text: &str) -> Result<Option<String>, usize> {
    // Almost all text is canonical, and this check is fast.
    if STANDARD.decode(text).is_ok() {
        return Ok(None);
    }
    decode(text.as_bytes()).map(|bytes| Some(encode(&bytes)))
}

/// The error is the offset of the first invalid byte.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let at = |index: usize| text.get(index).copied();
    let is_break = |index: usize| matches!(at(index), Some(b'\n' | b'\r'));
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut index, mut bits, mut count) = (0, 0_u32, 0);
    while let Some(symbol) = at(index) {
        index += 1;
        if let Some(value) = sextet(symbol) {
            bits = bits << 6 | u32::from(value);
            count += 1;
            if count == 4 {
                bytes.extend(bits.to_be_bytes().iter().skip(1));
                (bits, count) = (0, 0);
            }
            continue;
        }
        match symbol {
            b'\n' | b'\r' => continue,
            b'=' if count >= 2 => {}
            _ => return Err(index - 1),
        }
        // Padding: a second `=` if only two symbols precede, then the end of the text.
        if count == 2 {
            while is_break(index) {
                index += 1;
            }
            match at(index) {
                None => return Err(text.len()),
                Some(b'=') => index += 1,
                Some(_) => return Err(index - 1),
            }
        }
        while is_break(index) {
            index += 1;
        }
        if index < text.len() {
            return Err(index);
        }
        let bytes_left = count - 1;
        let bits = bits << (6 * (4 - count));
        bytes.extend(bits.to_be_bytes().iter().skip(1).take(bytes_left));
        return Ok(bytes);
    }
    if count == 0 { Ok(bytes) } else { Err(index - count) }
}

fn sextet(symbol: u8) -> Option<u8> {
    Some(match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}
