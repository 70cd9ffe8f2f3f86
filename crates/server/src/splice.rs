//! A list made of stored bytes, put together piece by piece while it is sent. A list of thousands of objects is never in memory
//! as a whole, and what is copied for it stays in the processor's cache until it is encrypted.

use std::sync::Arc;

use bytes::Bytes;
use storage::Entry;

use crate::encode;

/// How large a piece is, unless a single object is larger.
const PIECE: usize = 64 * 1024;

/// What is left of a list: a head, the items with commas between them, a foot.
#[derive(Clone, Debug)]
pub struct Splice {
    head: Vec<u8>,
    items: std::vec::IntoIter<Arc<Entry>>,
    /// What stands before each item.
    opening: &'static [u8],
    /// How much of an entry's body that stands for.
    skipped: usize,
    foot: Vec<u8>,
    left: u64,
}

impl Splice {
    /// A list of entries whose first `skipped` bytes are `opening` instead.
    pub fn new(
        head: Vec<u8>,
        items: Vec<Arc<Entry>>,
        (opening, skipped): (&'static [u8], usize),
        foot: Vec<u8>,
    ) -> Self {
        let of_items: usize =
            items.iter().map(|entry| opening.len() + encode::tail(entry, skipped).len()).sum();
        let commas = items.len().saturating_sub(1);
        let left = (head.len() + of_items + commas + foot.len()) as u64;
        Splice { head, items: items.into_iter(), opening, skipped, foot, left }
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// All that is left.
    pub fn whole(mut self) -> Vec<u8> {
        self.piece(usize::MAX)
    }

    /// Some of what is left: nothing at the end.
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
