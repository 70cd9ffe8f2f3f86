//! Small random changes of an input. A mutation is a few numbers, so that proptest can shrink a failing list of mutations to the
//! shortest and simplest one.

use proptest::prelude::*;

/// Longer inputs are truncated to this length.
pub(crate) const MAX_INPUT_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
enum MutationKind {
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

/// One mutation. Numbers that are too large for the input are taken modulo its length, or modulo the number of seeds or tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutation {
    kind: MutationKind,
    at: usize,
    length: usize,
    pick: usize,
}

/// Generates mutations; those that produce almost valid input are more frequent.
pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    use MutationKind::{
        Case, Delete, Duplicate, FlipBit, Insert, InsertPart, Lengthen, Move, Nest, Repeat, Replace, SetByte,
        Splice, Truncate,
    };
    let kind = prop_oneof![
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
    (kind, any::<u32>(), length, any::<u16>()).prop_map(|(kind, at, length, pick)| Mutation {
        kind,
        at: usize::try_from(at).unwrap_or_default(),
        length,
        pick: usize::from(pick),
    })
}

/// The element at `number` modulo the length of the list; empty if the list is.
fn element(list: &[Vec<u8>], number: usize) -> &[u8] {
    number.checked_rem(list.len()).and_then(|index| list.get(index)).map(Vec::as_slice).unwrap_or_default()
}

impl Mutation {
    /// Changes `bytes`, inserting parts of other seeds and tokens.
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], tokens: &[Vec<u8>]) {
        let at = self.at % (bytes.len() + 1);
        let end = (at + self.length).min(bytes.len());
        let token = || element(tokens, self.pick).to_vec();
        match self.kind {
            MutationKind::Truncate => bytes.truncate(at),
            MutationKind::Delete => drop(bytes.drain(at..end)),
            MutationKind::FlipBit => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (self.pick % 8);
                }
            }
            MutationKind::SetByte => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(self.pick % 256).unwrap_or_default();
                }
            }
            MutationKind::Insert => drop(bytes.splice(at..at, token())),
            MutationKind::Replace => drop(bytes.splice(at..end, token())),
            MutationKind::Duplicate => {
                let part = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, part);
            }
            MutationKind::Repeat => {
                let part = bytes.get(at..end.min(at + 64)).unwrap_or_default().repeat(self.pick % 512);
                bytes.splice(at..at, part);
            }
            MutationKind::Move => {
                let part: Vec<u8> = bytes.drain(at..end).collect();
                let to = self.pick % (bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            MutationKind::Splice => {
                let other = element(seeds, self.pick);
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(self.length % (other.len() + 1)..).unwrap_or_default());
            }
            MutationKind::InsertPart => {
                let other = element(seeds, self.pick);
                let start = self.at % (other.len() + 1);
                let part =
                    other.get(start..(start + self.length).min(other.len())).unwrap_or_default().to_vec();
                bytes.splice(at..at, part);
            }
            MutationKind::Nest => {
                let (open, times) = (token(), self.length % 1024);
                let close = element(tokens, self.pick + 1).repeat(times);
                bytes.splice(end..end, close);
                bytes.splice(at..at, open.repeat(times));
            }
            MutationKind::Lengthen => {
                let byte = bytes.get(at).copied().unwrap_or(b'a');
                bytes.splice(at..at, std::iter::repeat_n(byte, self.length * 8));
            }
            MutationKind::Case => {
                for byte in bytes.get_mut(at..end).unwrap_or_default() {
                    *byte = if byte.is_ascii_lowercase() {
                        byte.to_ascii_uppercase()
                    } else {
                        byte.to_ascii_lowercase()
                    };
                }
            }
        }
        bytes.truncate(MAX_INPUT_BYTES);
    }
}
