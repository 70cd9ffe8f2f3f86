//! Counts the work of compiling an expression, so that the budget of a request limits and cancels it.
//!
//! Parsing, checking, planning and estimating are linear in the nodes of the tree, but a claim or a policy has many
//! expressions. Each stage counts its nodes before it begins, as accesses of [`value::steps`].

use value::steps;

/// Accesses that a stage counts for each node: with three stages and the copies of macros, 32 steps of some ten
/// nanoseconds.
const ACCESSES_PER_NODE: usize = 64;
/// Accesses for reading one byte of an expression.
const ACCESSES_PER_BYTE: usize = 16;

/// Counts a stage that visits each of so many nodes. Inside of [`steps::within`] this may not return.
pub(crate) fn count_stage(nodes: usize) {
    steps::count(nodes.saturating_mul(ACCESSES_PER_NODE));
}

/// Counts reading an expression of so many bytes. Inside of [`steps::within`] this may not return.
pub(crate) fn count_text(bytes: usize) {
    steps::count(bytes.saturating_mul(ACCESSES_PER_BYTE));
}
