//! One small change of an input. What it changes is chosen by numbers, so that a list of mutations can be made shorter and
//! simpler until nothing can be left out.

use proptest::prelude::*;

/// Inputs are cut to this length.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

/// What is done to an input.
#[derive(Clone, Copy, Debug)]
enum Change {
    Truncate,
    Delete,
    FlipBit,
    SetByte,
    Insert,
    Replace,
    Duplicate,
    Repeat,
    Move,
    Splice,
    InsertPart,
    Nest,
    Lengthen,
    Case,
}

/// A change and where it happens: all numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutation {
    change: Change,
    at: usize,
    length: usize,
    pick: usize,
}

/// Any mutation.
pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    use Change::{
        Case, Delete, Duplicate, FlipBit, Insert, InsertPart, Lengthen, Move, Nest, Repeat, Replace, SetByte,
        Splice, Truncate,
    };
    let change = prop_oneof![
        1 => Just(Truncate),
        2 => Just(Delete),
        2 => Just(FlipBit),
        2 => Just(SetByte),
        4 => Just(Insert),
        4 => Just(Replace),
        2 => Just(Duplicate),
        1 => Just(Repeat),
        1 => Just(Move),
        2 => Just(Splice),
        2 => Just(InsertPart),
        1 => Just(Nest),
        1 => Just(Lengthen),
        1 => Just(Case),
    ];
    let length = prop_oneof![4 => 0..8_usize, 2 => 0..64_usize, 1 => 0..4096_usize];
    (change, any::<u32>(), length, any::<u16>()).prop_map(|(change, at, length, pick)| Mutation {
        change,
        at: usize::try_from(at).unwrap_or_default(),
        length,
        pick: usize::from(pick),
    })
}

/// An element of a list that is chosen by a number.
fn chosen(list: &[Vec<u8>], number: usize) -> &[u8] {
    number.checked_rem(list.len()).and_then(|index| list.get(index)).map(Vec::as_slice).unwrap_or_default()
}

impl Mutation {
    /// Changes `bytes`, with other seeds and tokens as material.
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], tokens: &[Vec<u8>]) {
        let at = self.at % (bytes.len() + 1);
        let end = (at + self.length).min(bytes.len());
        let token = || chosen(tokens, self.pick).to_vec();
        match self.change {
            Change::Truncate => bytes.truncate(at),
            Change::Delete => drop(bytes.drain(at..end)),
            Change::FlipBit => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (self.pick % 8);
                }
            }
            Change::SetByte => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(self.pick % 256).unwrap_or_default();
                }
            }
            Change::Insert => drop(bytes.splice(at..at, token())),
            Change::Replace => drop(bytes.splice(at..end, token())),
            Change::Duplicate => {
                let part = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, part);
            }
            Change::Repeat => {
                let part = bytes.get(at..end.min(at + 64)).unwrap_or_default().repeat(self.pick % 512);
                bytes.splice(at..at, part);
            }
            Change::Move => {
                let part: Vec<u8> = bytes.drain(at..end).collect();
                let to = self.pick % (bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            Change::Splice => {
                let other = chosen(seeds, self.pick);
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(self.length % (other.len() + 1)..).unwrap_or_default());
            }
            Change::InsertPart => {
                let other = chosen(seeds, self.pick);
                let start = self.at % (other.len() + 1);
                let part =
                    other.get(start..(start + self.length).min(other.len())).unwrap_or_default().to_vec();
                bytes.splice(at..at, part);
            }
            Change::Nest => {
                let (open, times) = (token(), self.length % 1024);
                let close = chosen(tokens, self.pick + 1).repeat(times);
                bytes.splice(end..end, close);
                bytes.splice(at..at, open.repeat(times));
            }
            Change::Lengthen => {
                let byte = bytes.get(at).copied().unwrap_or(b'a');
                bytes.splice(at..at, std::iter::repeat_n(byte, self.length * 8));
            }
            Change::Case => {
                for byte in bytes.get_mut(at..end).unwrap_or_default() {
                    *byte = if byte.is_ascii_lowercase() {
                        byte.to_ascii_uppercase()
                    } else {
                        byte.to_ascii_lowercase()
                    };
                }
            }
        }
        bytes.truncate(MOST_BYTES);
    }
}
