//! Pike-style NFA matching. Slower than the engines of `regex-automata`, but every state visit is charged, and the
//! search stops when the budget is exhausted.

use std::ops::Range;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

/// State visits per work unit (about 100 ns).
pub(super) const VISITS_PER_UNIT: u64 = 16;
/// Units between two payments. A search that cannot pay has wasted less than a millisecond.
const UNITS_PER_PAYMENT: u64 = 4096;
/// NFA states whose memory is charged as one visit.
const STATES_PER_VISIT: usize = 16;
/// Byte ranges of a sparse state that are charged as one visit.
const RANGES_PER_VISIT: usize = 8;

/// The set of current states in order of preference, each with the start of its match.
struct NfaThreads {
    order: Vec<(StateID, usize)>,
    /// Index of each state in `order`.
    positions: Vec<u32>,
}

impl NfaThreads {
    fn new(states: usize) -> Self {
        NfaThreads { order: Vec::new(), positions: vec![0; states] }
    }

    /// Returns false if the state is already in the set.
    fn insert(&mut self, state: StateID, start: usize) -> bool {
        let Some(position) = self.positions.get_mut(state.as_usize()) else { return false };
        if self.order.get(*position as usize).is_some_and(|(known, _)| *known == state) {
            return false;
        }
        *position = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        self.order.push((state, start));
        true
    }
}

/// A search for the leftmost match in a text.
pub(super) struct NfaSearch<'s> {
    pub(super) nfa: &'s NFA,
    pub(super) text: &'s str,
    /// Stop at the first match found, whatever its start and end.
    pub(super) earliest: bool,
}

impl NfaSearch<'_> {
    /// Finds the first match at or after byte `at`. `spend` is called with the units of work done.
    pub(super) fn run<E>(
        &self,
        from: usize,
        spend: &mut impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        let bytes = self.text.as_bytes();
        let states = self.nfa.states().len();
        let (mut now, mut next) = (NfaThreads::new(states), NfaThreads::new(states));
        let mut stack = Vec::new();
        let mut found = None;
        let mut visits = (states / STATES_PER_VISIT) as u64;
        for at in from..=bytes.len() {
            if now.order.is_empty() && (found.is_some() || (at > 0 && self.nfa.is_always_start_anchored())) {
                break;
            }
            if found.is_none() {
                visits += self.enter(self.nfa.start_anchored(), at, at, &mut now, &mut stack);
            }
            let byte = bytes.get(at);
            for (state, start) in &now.order {
                let target = match (self.nfa.state(*state), byte) {
                    // Only an empty match could be inside a code point.
                    (State::Match { .. }, _) if self.text.is_char_boundary(at) => {
                        found = Some(*start..at);
                        break;
                    }
                    (State::ByteRange { trans }, Some(byte)) => {
                        trans.matches_byte(*byte).then_some(trans.next)
                    }
                    (State::Sparse(ranges), Some(byte)) => {
                        visits += (ranges.transitions.len() / RANGES_PER_VISIT) as u64;
                        ranges.matches_byte(*byte)
                    }
                    (State::Dense(table), Some(byte)) => table.matches_byte(*byte),
                    _ => None,
                };
                visits += 1;
                if let Some(target) = target {
                    visits += self.enter(target, *start, at + 1, &mut next, &mut stack);
                }
            }
            if found.is_some() && self.earliest {
                break;
            }
            std::mem::swap(&mut now, &mut next);
            next.order.clear();
            if visits >= VISITS_PER_UNIT * UNITS_PER_PAYMENT {
                spend(visits / VISITS_PER_UNIT)?;
                visits %= VISITS_PER_UNIT;
            }
        }
        spend(visits.div_ceil(VISITS_PER_UNIT))?;
        Ok(found)
    }

    /// Adds a state and its epsilon closure; returns the number of visited states.
    fn enter(
        &self,
        state: StateID,
        start: usize,
        at: usize,
        threads: &mut NfaThreads,
        stack: &mut Vec<StateID>,
    ) -> u64 {
        let mut visits = 0;
        stack.push(state);
        while let Some(state) = stack.pop() {
            visits += 1;
            if !threads.insert(state, start) {
                continue;
            }
            match self.nfa.state(state) {
                State::Union { alternates } => stack.extend(alternates.iter().rev()),
                State::BinaryUnion { alt1, alt2 } => stack.extend([*alt2, *alt1]),
                State::Capture { next, .. } => stack.push(*next),
                State::Look { look, next } => {
                    if self.nfa.look_matcher().matches(*look, self.text.as_bytes(), at) {
                        stack.push(*next);
                    }
                }
                State::ByteRange { .. }
                | State::Sparse(_)
                | State::Dense(_)
                | State::Fail
                | State::Match { .. } => {}
            }
        }
        visits
    }
}
