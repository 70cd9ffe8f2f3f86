//! Parses DER as strictly as Go's `encoding/asn1`: lengths must be definite and minimal. Multi-byte tags, which
//! certificates and requests do not use, are refused.

use crate::Error;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The context-specific tag `[number]` of a structure.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// An element of a DER structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerElement<'a> {
    /// Identifier byte: class, form and tag number.
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The element with its tag and length.
    pub(crate) raw: &'a [u8],
}

impl<'a> DerElement<'a> {
    /// The elements inside a constructed element.
    pub(crate) fn inside(self) -> DerReader<'a> {
        DerReader(self.content)
    }

    /// The bytes of a BIT STRING, which must consist of whole bytes.
    pub(crate) fn bits(self) -> Result<&'a [u8], Error> {
        match (self.tag, self.content) {
            (BIT_STRING, [0, bytes @ ..]) => Ok(bytes),
            _ => Err(Error::MalformedRequest),
        }
    }

    /// The bytes of a positive INTEGER, without the leading zero byte; `None` if it is not positive.
    pub(crate) fn positive(self) -> Option<&'a [u8]> {
        match (self.tag, self.content) {
            (INTEGER, [0, rest @ ..]) if rest.first().is_some_and(|first| *first >= 0x80) => Some(rest),
            (INTEGER, number @ [1..=0x7f, ..]) => Some(number),
            _ => None,
        }
    }
}

/// Reads a sequence of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerReader<'a>(pub(crate) &'a [u8]);

impl<'a> DerReader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the next element.
    pub(crate) fn any(&mut self) -> Result<DerElement<'a>, Error> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk::<2>().ok_or(Error::MalformedRequest)?;
        if tag & 0x1f == 0x1f {
            return Err(Error::MalformedRequest);
        }
        let mut length = usize::from(first);
        if first & 0x80 != 0 {
            let count = usize::from(first & 0x7f);
            let (digits, after) = rest.split_at_checked(count).ok_or(Error::MalformedRequest)?;
            if count > 4 || digits.first().is_none_or(|digit| *digit == 0) {
                return Err(Error::MalformedRequest);
            }
            length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            if length < 0x80 {
                return Err(Error::MalformedRequest);
            }
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length).ok_or(Error::MalformedRequest)?;
        let raw = self.0.get(..self.0.len() - after.len()).ok_or(Error::MalformedRequest)?;
        self.0 = after;
        Ok(DerElement { tag, content, raw })
    }

    /// Reads the next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<DerElement<'a>, Error> {
        self.any().and_then(|found| if found.tag == tag { Ok(found) } else { Err(Error::MalformedRequest) })
    }
}
