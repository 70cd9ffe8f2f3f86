//! [`SelectorFacts`]: an object's labels and selectable fields in a compact encoding, so that selectors need not decode the
//! object.
//!
//! Encoding: the length of the label part (four bytes, little-endian), the labels, the fields. Each entry is the
//! length of its key and of its value (little-endian base 128), the key, the value.

use value::{Value, push_varint};

use super::labels::{Labels, SortedLabels};

/// Encodes facts; see [`FactsRef`] for reading them.
#[derive(Debug)]
pub struct SelectorFacts;

impl SelectorFacts {
    /// Encodes labels, in any order, and field values. Fields without a value may be left out; they read as the empty
    /// string.
    pub fn encode<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Vec<u8> {
        let mut out = vec![0; 4];
        for (key, value) in labels {
            entry(&mut out, key, value);
        }
        let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
        for (target, byte) in out.iter_mut().zip(length.to_le_bytes()) {
            *target = byte;
        }
        for (key, value) in fields {
            entry(&mut out, key, value);
        }
        out.shrink_to_fit();
        out
    }

    /// Like [`SelectorFacts::encode`], with the labels of `object`.
    pub fn of<'a>(object: &'a Value, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
        let labels = object.at(&["metadata", "labels"]).and_then(Value::as_map);
        let labels = labels.into_iter().flat_map(value::Map::iter);
        Self::encode(labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))), fields)
    }
}

fn entry(out: &mut Vec<u8>, key: &str, value: &str) {
    push_varint(out, key.len() as u64);
    push_varint(out, value.len() as u64);
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// Reads facts without copying. Damaged bytes read as fewer facts, never as an error.
#[derive(Clone, Copy, Debug)]
pub struct FactsRef<'a> {
    labels: &'a [u8],
    fields: &'a [u8],
}

impl<'a> FactsRef<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let (head, rest) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        let (labels, fields) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        FactsRef { labels, fields }
    }

    pub fn label(self, key: &str) -> Option<&'a str> {
        FactEntries(self.labels).value(key)
    }

    /// The value of a field; empty if it has none.
    pub fn field(self, key: &str) -> &'a str {
        FactEntries(self.fields).value(key).unwrap_or_default()
    }

    pub fn labels(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        FactEntries(self.labels).texts()
    }

    pub fn fields(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        FactEntries(self.fields).texts()
    }
}

impl Labels for FactsRef<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        FactsRef::label(*self, key)
    }

    fn sorted(&self) -> Option<SortedLabels<'_>> {
        Some(self.labels().collect())
    }
}

#[derive(Clone, Debug)]
struct FactEntries<'a>(&'a [u8]);

impl<'a> FactEntries<'a> {
    fn value(mut self, key: &str) -> Option<&'a str> {
        let (_, value) = self.find(|(k, _)| *k == key.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    fn texts(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.into_iter()
            .filter_map(|(k, v)| Some((std::str::from_utf8(k).ok()?, std::str::from_utf8(v).ok()?)))
    }

    fn number(&mut self) -> Option<usize> {
        let mut n = 0;
        for shift in [0, 7, 14, 21, 28] {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            n |= usize::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }
}

impl<'a> Iterator for FactEntries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = (self.number()?, self.number()?);
        let (key, rest) = self.0.split_at_checked(key)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.0 = rest;
        Some((key, value))
    }
}
