//! Matching by the set of states that an automaton is in. It is slower than the engines of `regex-automata`, but every visit of a
//! state is counted and paid for, and the search ends when that is too much.

use std::ops::Range;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

/// As many visits of states are one unit of work (about 100 ns).
pub(super) const VISITS_PER_UNIT: u64 = 16;
/// The units after which the work is paid for. What is wasted when nothing more can be paid is less than a millisecond.
const UNITS_PER_PAYMENT: u64 = 4096;
/// As many states of a pattern are one visit, for the memory that a search needs.
const STATES_PER_VISIT: usize = 16;
/// As many ranges of bytes of one state are one visit.
const RANGES_PER_VISIT: usize = 8;

/// The states that the automaton is in, those that are preferred first, each with the place where its match began.
struct NfaThreads {
    order: Vec<(StateID, usize)>,
    /// Where in `order` a state is, if it is there at all.
    positions: Vec<u32>,
}

impl NfaThreads {
    fn new(states: usize) -> Self {
        NfaThreads { order: Vec::new(), positions: vec![0; states] }
    }

    /// False if it is there already.
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

/// One search in a text.
pub(super) struct NfaSearch<'s> {
    pub(super) nfa: &'s NFA,
    pub(super) text: &'s str,
    /// Ends with the first match that is known to exist, wherever it begins and ends.
    pub(super) earliest: bool,
}

impl NfaSearch<'_> {
    /// The first match at or after a place. `spend` pays for units of work that were done.
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
                    // Only what is empty could match inside a character.
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

    /// Adds a state, and all that are reached from it without reading anything. Returns how many were visited.
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
