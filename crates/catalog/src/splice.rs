//! Builds the body of a list from stored bytes, piece by piece while it is sent. A list of thousands of objects is never in memory as a
//! whole, and copied bytes stay in the processor's cache until they are encrypted.

use std::sync::Arc;

use bytes::Bytes;
use storage::StoredEntry;

use crate::encode;

/// Target size of a piece in bytes; a single larger object exceeds it.
const PIECE: usize = 64 * 1024;

/// The rest of a list: a head, the items separated by commas, a foot.
#[derive(Clone, Debug)]
pub struct Splice {
    head: Vec<u8>,
    items: std::vec::IntoIter<Arc<StoredEntry>>,
    /// Written before each item.
    opening: &'static [u8],
    /// Number of bytes at the start of an entry's body that `opening` replaces.
    skipped: usize,
    foot: Vec<u8>,
    left: u64,
}

impl Splice {
    /// A list of entries in which `opening` replaces the first `skipped` bytes of each body.
    pub fn new(
        head: Vec<u8>,
        items: Vec<Arc<StoredEntry>>,
        (opening, skipped): (&'static [u8], usize),
        foot: Vec<u8>,
    ) -> Self {
        let of_items: usize =
            items.iter().map(|entry| opening.len() + encode::tail(entry, skipped).len()).sum();
        let commas = items.len().saturating_sub(1);
        let left = (head.len() + of_items + commas + foot.len()) as u64;
        Splice { head, items: items.into_iter(), opening, skipped, foot, left }
    }

    /// Number of bytes not yet returned.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// All remaining bytes at once.
    pub fn whole(mut self) -> Vec<u8> {
        self.piece(usize::MAX)
    }

    /// The next bytes, at least `size` if so many remain; empty at the end.
    fn piece(&mut self, size: usize) -> Vec<u8> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(left.min(size));
        out.append(&mut self.head);
        while out.len() < size {
            let Some(entry) = self.items.next() else {
                out.append(&mut self.foot);
                break;
            };
            out.extend_from_slice(self.opening);
            out.extend_from_slice(encode::tail(&entry, self.skipped));
            if !self.items.as_slice().is_empty() {
                out.push(b',');
            }
        }
        self.left = self.left.saturating_sub(out.len() as u64);
        out
    }
}

impl Iterator for Splice {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.piece(PIECE);
        (!piece.is_empty()).then(|| piece.into())
    }
}

#[cfg(test)]
mod tests;
