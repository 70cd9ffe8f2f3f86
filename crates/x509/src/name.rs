//! Names: what a subject says, in every string type that Go reads.

use crate::Error;
use crate::der::{DerReader, OBJECT_IDENTIFIER, SEQUENCE, SET};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The parts of a subject that Kubernetes makes users and groups of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The common name; of several the last, as Go reads them.
    pub common_name: String,
    /// The organizations in order.
    pub organizations: Vec<String>,
}

impl Subject {
    /// Reads the elements of an RDNSequence.
    pub(crate) fn read(mut sequence: DerReader<'_>) -> Result<Self, Error> {
        let mut subject = Subject::default();
        while !sequence.is_empty() {
            let mut set = sequence.expect(SET)?.inside();
            while !set.is_empty() {
                // Go takes the first two elements of an attribute and does not look at more.
                let mut attribute = set.expect(SEQUENCE)?.inside();
                let kind = attribute.expect(OBJECT_IDENTIFIER)?.content;
                let value = attribute.any()?;
                let text = directory_string(value.tag, value.content)?;
                match kind {
                    COMMON_NAME => subject.common_name = text.ok_or(Error::NameNotText)?,
                    ORGANIZATION => subject.organizations.push(text.ok_or(Error::NameNotText)?),
                    _ => {}
                }
            }
        }
        Ok(subject)
    }
}

/// The text of a value in a name; nothing if `tag`, its identifier byte with class and form, is none of the string types that
/// Go reads.
pub fn directory_string(tag: u8, bytes: &[u8]) -> Result<Option<String>, Error> {
    let checked = |is_allowed: fn(&u8) -> bool, why| {
        if bytes.iter().all(is_allowed) {
            Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
        } else {
            Err(why)
        }
    };
    match tag {
        0x0c => std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "asn1: invalid UTF-8 string"),
        0x12 => checked(
            |byte| matches!(byte, b'0'..=b'9' | b' '),
            "asn1: syntax error: NumericString contains invalid character",
        ),
        0x13 => checked(is_printable, "asn1: syntax error: PrintableString contains invalid character"),
        // T.61 is read as Latin-1.
        0x14 => checked(|_| true, ""),
        0x16 => checked(u8::is_ascii, "asn1: syntax error: IA5String contains invalid character"),
        0x1e => basic_plane(bytes).ok_or("invalid BMPString"),
        _ => return Ok(None),
    }
    .map(Some)
    .map_err(Error::Text)
}

/// With the asterisk and the ampersand, which are not allowed in a PrintableString and are common.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as `u8::is_ascii`, beside which it is used")]
fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()*+,-./:=?&".contains(byte)
}

/// Characters of two bytes, without surrogates and noncharacters; one zero character at the end is not part of the text.
fn basic_plane(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.strip_suffix(&[0, 0]).filter(|rest| rest.len() % 2 == 0).unwrap_or(bytes);
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    pairs
        .iter()
        .map(|pair| match u16::from_be_bytes(*pair) {
            0xfdd0..=0xfdef | 0xfffe | 0xffff => None,
            unit => char::from_u32(u32::from(unit)),
        })
        .collect()
}
