//! Parses subjects, in every string type that Go accepts.

use crate::Error;
use crate::der::{DerReader, OBJECT_IDENTIFIER, SEQUENCE, SET};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The parts of a subject that Kubernetes maps to users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// The common name; the last one if there are several, as in Go.
    pub common_name: String,
    /// The organizations in order.
    pub organizations: Vec<String>,
}

impl CertificateSubject {
    /// Parses the elements of an RDNSequence.
    pub(crate) fn read(mut sequence: DerReader<'_>) -> Result<Self, Error> {
        let mut subject = CertificateSubject::default();
        while !sequence.is_empty() {
            let mut set = sequence.expect(SET)?.inside();
            while !set.is_empty() {
                // Go reads the first two elements of an attribute and ignores further ones.
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

/// The text of a value in a name; `None` if `tag`, its identifier byte, is not a string type that Go accepts.
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
        // T61String is read as Latin-1.
        0x14 => checked(|_| true, ""),
        0x16 => checked(u8::is_ascii, "asn1: syntax error: IA5String contains invalid character"),
        0x1e => basic_plane(bytes).ok_or("invalid BMPString"),
        _ => return Ok(None),
    }
    .map(Some)
    .map_err(Error::Text)
}

/// PrintableString characters, with the asterisk and ampersand, which are not allowed but common.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as `u8::is_ascii`, beside which it is used")]
fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()*+,-./:=?&".contains(byte)
}

/// UTF-16 text of the basic plane, without surrogates and noncharacters; one trailing zero character is dropped.
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
