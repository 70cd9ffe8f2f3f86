//! Base64 as Go's `encoding/base64` decodes it: line breaks and left-over bits are ignored, and an error gives the byte offset.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Go's `base64.CorruptInputError`: the offset that Go reports for invalid input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptInputError(pub usize);

impl fmt::Display for CorruptInputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "illegal base64 data at input byte {}", self.0)
    }
}

impl std::error::Error for CorruptInputError {}

/// One of Go's predefined encodings.
#[derive(Debug)]
pub struct Base64Encoding {
    engine: GeneralPurpose,
    /// The symbols for 62 and 63.
    last_symbols: (u8, u8),
    padded: bool,
}

/// Go's `base64.StdEncoding`: padded, with `+` and `/`.
pub const STD: Base64Encoding = Base64Encoding {
    engine: GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    ),
    last_symbols: (b'+', b'/'),
    padded: true,
};

/// Go's `base64.RawURLEncoding`: without padding, with `-` and `_`.
pub const RAW_URL: Base64Encoding = Base64Encoding {
    engine: GeneralPurpose::new(
        &alphabet::URL_SAFE,
        GeneralPurposeConfig::new()
            .with_encode_padding(false)
            .with_decode_padding_mode(DecodePaddingMode::RequireNone)
            .with_decode_allow_trailing_bits(true),
    ),
    last_symbols: (b'-', b'_'),
    padded: false,
};

impl Base64Encoding {
    pub fn encode(&self, bytes: impl AsRef<[u8]>) -> String {
        self.engine.encode(bytes)
    }

    pub fn decode(&self, text: impl AsRef<[u8]>) -> Result<Vec<u8>, CorruptInputError> {
        let text = text.as_ref();
        // The crate's decoder is fast but knows neither line breaks nor Go's offsets.
        self.engine.decode(text).or_else(|_| self.decode_by_symbol(text).map_err(CorruptInputError))
    }

    fn decode_by_symbol(&self, text: &[u8]) -> Result<Vec<u8>, usize> {
        let at = |index: usize| text.get(index).copied();
        let is_break = |index: usize| matches!(at(index), Some(b'\n' | b'\r'));
        let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
        let (mut index, mut bits, mut count) = (0, 0_u32, 0);
        while let Some(symbol) = at(index) {
            index += 1;
            if let Some(value) = self.sextet(symbol) {
                bits = bits << 6 | value;
                count += 1;
                if count == 4 {
                    push_quantum(&mut bytes, bits, count);
                    (bits, count) = (0, 0);
                }
                continue;
            }
            match symbol {
                b'\n' | b'\r' => continue,
                b'=' if self.padded && count >= 2 => {}
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
            push_quantum(&mut bytes, bits, count);
            return Ok(bytes);
        }
        match count {
            0 => {}
            2 | 3 if !self.padded => push_quantum(&mut bytes, bits, count),
            _ => return Err(index - count),
        }
        Ok(bytes)
    }

    fn sextet(&self, symbol: u8) -> Option<u32> {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            _ if symbol == self.last_symbols.0 => 62,
            _ if symbol == self.last_symbols.1 => 63,
            _ => return None,
        };
        Some(u32::from(value))
    }
}

/// Appends the bytes of 2 to 4 symbols, of which `bits` has the lowest `6 * symbols` bits.
fn push_quantum(bytes: &mut Vec<u8>, bits: u32, symbols: usize) {
    let bits = bits << (6 * (4 - symbols));
    bytes.extend(bits.to_be_bytes().iter().skip(1).take(symbols - 1));
}

/// The canonical form of standard base64 if `text` is not canonical.
pub fn canonical(text: &str) -> Result<Option<String>, CorruptInputError> {
    // Almost all text is canonical, and this check is fast.
    if base64::engine::general_purpose::STANDARD.decode(text).is_ok() {
        return Ok(None);
    }
    STD.decode(text).map(|bytes| Some(STD.encode(bytes)))
}
