//! The numbers of nodes, and where each is in the source.

use super::ast::{Expr, Id};
use super::source::{Location, Source};

/// The place of what is nowhere in the expression.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Gives out node numbers and keeps the places.
pub(crate) struct Nodes<'s> {
    pub(super) source: &'s Source,
    pub(super) offsets: Vec<Option<u32>>,
    pub(super) macro_calls: Vec<(Id, Expr)>,
}

impl Nodes<'_> {
    pub(super) fn id(&mut self, offset: Option<u32>) -> Id {
        self.offsets.push(offset);
        u32::try_from(self.offsets.len() - 1).unwrap_or(u32::MAX)
    }

    /// A new number at the place of another node.
    pub(crate) fn id_at(&mut self, other: Id) -> Id {
        let offset = self.offset(other);
        self.id(offset)
    }

    /// How many numbers have been given out.
    pub(crate) fn count(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn offset(&self, id: Id) -> Option<u32> {
        self.offsets.get(id as usize).copied().flatten()
    }

    pub(super) fn place(&mut self, id: Id, offset: u32) {
        if let Some(place) = self.offsets.get_mut(id as usize) {
            *place = Some(offset);
        }
    }

    /// Forgets a number; the last one given out is given out again.
    pub(super) fn delete(&mut self, id: Id) {
        if id as usize + 1 == self.offsets.len() {
            self.offsets.pop();
        } else if let Some(place) = self.offsets.get_mut(id as usize) {
            *place = None;
        }
    }

    pub(super) fn location(&self, id: Id) -> Location {
        match self.offset(id) {
            Some(NOWHERE) => Location { line: 1, column: -1 },
            Some(offset) => self.source.location(offset),
            None => Location::NONE,
        }
    }
}
