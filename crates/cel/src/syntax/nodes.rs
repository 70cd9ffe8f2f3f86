//! Allocates node ids and records the source offset of each node.

use super::ast::{Expr, NodeId};
use super::source::{Location, Source};

/// Offset of a node that has no position in the expression.
pub(super) const NO_OFFSET: u32 = u32::MAX;

/// Nodes per token of the expression that it may have after macros that copy their receiver were expanded. The other
/// macros stay below this.
const NODES_PER_TOKEN: usize = 4;
/// Nodes that any expression may have then: enough for `optMap` on the result of `optMap`, eight times.
const FREE_NODES: usize = 4096;
/// Upper bound of both, for the longest expressions.
const MAX_NODES: usize = 1 << 17;

/// Allocates node ids, in the order in which cel-go does.
pub(crate) struct NodeIds<'s> {
    pub(super) source: &'s Source,
    pub(super) offsets: Vec<Option<u32>>,
    pub(super) macro_calls: Vec<(NodeId, Expr)>,
    /// Number of nodes above which nothing may be copied.
    max_nodes: usize,
}

impl<'s> NodeIds<'s> {
    /// No ids yet, for an expression of so many tokens.
    pub(super) fn new(source: &'s Source, tokens: usize) -> Self {
        let max_nodes = tokens.saturating_mul(NODES_PER_TOKEN).saturating_add(FREE_NODES).min(MAX_NODES);
        NodeIds { source, offsets: vec![None], macro_calls: Vec::new(), max_nodes }
    }
}

impl NodeIds<'_> {
    pub(super) fn id(&mut self, offset: Option<u32>) -> NodeId {
        self.offsets.push(offset);
        u32::try_from(self.offsets.len() - 1).unwrap_or(u32::MAX)
    }

    /// Allocates an id with the source offset of another node.
    pub(crate) fn id_at(&mut self, other: NodeId) -> NodeId {
        let offset = self.offset(other);
        self.id(offset)
    }

    /// True if a macro may copy so many nodes. Each link of a chain of macros that copy their receiver doubles the
    /// tree, so that the size of the tree is bounded by the length of the expression.
    pub(crate) fn has_room_for_copies(&self, nodes: usize) -> bool {
        self.offsets.len().saturating_add(nodes) <= self.max_nodes
    }

    pub(crate) fn offset(&self, id: NodeId) -> Option<u32> {
        self.offsets.get(id as usize).copied().flatten()
    }

    pub(super) fn set_offset(&mut self, id: NodeId, offset: u32) {
        if let Some(slot) = self.offsets.get_mut(id as usize) {
            *slot = Some(offset);
        }
    }

    /// Releases an id. Only the last one can be allocated again.
    pub(super) fn delete(&mut self, id: NodeId) {
        if id as usize + 1 == self.offsets.len() {
            self.offsets.pop();
        } else if let Some(slot) = self.offsets.get_mut(id as usize) {
            *slot = None;
        }
    }

    pub(super) fn location(&self, id: NodeId) -> Location {
        match self.offset(id) {
            Some(NO_OFFSET) => Location { line: 1, column: -1 },
            Some(offset) => self.source.location(offset),
            None => Location::NONE,
        }
    }
}
