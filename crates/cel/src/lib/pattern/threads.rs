//! Pike-style matching. Slower than the engines of `regex-automata`, but every state visit is charged, and the search
//! stops when the budget is exhausted.

use std::ops::Range;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

/// State visits per work unit (about 100 ns).
pub(super) const VISITS_PER_UNIT: u64 = 16;
/// Units between two payments. A search that cannot pay has wasted less than a millisecond.
const UNITS_PER_PAYMENT: u64 = 4096;
/// States whose memory is charged as one visit.
const STATES_PER_VISIT: usize = 16;
/// Byte ranges of a sparse state that are charged as one visit.
const RANGES_PER_VISIT: usize = 8;

/// An automaton with the text that it reads, by bytes or by characters.
pub(super) trait PatternAutomaton {
    type State: Copy + PartialEq;

    fn states(&self) -> usize;

    fn index(state: Self::State) -> usize;

    fn start(&self) -> Self::State;

    /// True if every match starts at the start of the text.
    fn is_anchored(&self) -> bool;

    fn text(&self) -> &str;

    /// Reads the byte or character at `at`; returns the position after it.
    fn read(&mut self, at: usize) -> usize;

    /// Pushes the states that `state` continues in without reading, the preferred one last.
    fn follow(&self, state: Self::State, at: usize, stack: &mut Vec<Self::State>);

    /// Continues `state` with the byte or character read at `at`. Work beyond one visit is added to `visits`.
    fn step(&mut self, state: Self::State, at: usize, visits: &mut u64) -> ThreadStep<Self::State>;
}

/// The outcome of a state for one byte or character.
pub(super) enum ThreadStep<S> {
    Dead,
    To(S),
    Match,
}

/// The set of current states in order of preference, each with the start of its match.
struct Threads<S> {
    order: Vec<(S, usize)>,
    /// Index of each state in `order`.
    positions: Vec<u32>,
}

impl<S: Copy + PartialEq> Threads<S> {
    fn new(states: usize) -> Self {
        Threads { order: Vec::new(), positions: vec![0; states] }
    }

    /// Returns false if the state is already in the set.
    fn insert(&mut self, state: S, index: usize, start: usize) -> bool {
        let Some(position) = self.positions.get_mut(index) else { return false };
        if self.order.get(*position as usize).is_some_and(|(known, _)| *known == state) {
            return false;
        }
        *position = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        self.order.push((state, start));
        true
    }
}

/// A search for the leftmost match in a text.
pub(super) struct ThreadSearch<M> {
    pub(super) machine: M,
    /// Stop at the first match found, whatever its start and end.
    pub(super) earliest: bool,
}

impl<M: PatternAutomaton> ThreadSearch<M> {
    /// Finds the first match at or after byte `from`. `spend` is called with the units of work done.
    pub(super) fn run<E>(
        &mut self,
        from: usize,
        spend: &mut impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        let states = self.machine.states();
        let (mut now, mut next) = (Threads::new(states), Threads::new(states));
        let mut stack = Vec::new();
        let mut found = None;
        let mut visits = (states / STATES_PER_VISIT) as u64;
        let mut at = from;
        while at <= self.machine.text().len() {
            if now.order.is_empty() && (found.is_some() || (at > 0 && self.machine.is_anchored())) {
                break;
            }
            if found.is_none() {
                visits += self.enter(self.machine.start(), at, at, &mut now, &mut stack);
            }
            let after = self.machine.read(at);
            for (state, start) in &now.order {
                visits += 1;
                match self.machine.step(*state, at, &mut visits) {
                    // Only an empty match could be inside a code point.
                    ThreadStep::Match if self.machine.text().is_char_boundary(at) => {
                        found = Some(*start..at);
                        break;
                    }
                    ThreadStep::Match | ThreadStep::Dead => {}
                    ThreadStep::To(target) => {
                        visits += self.enter(target, *start, after, &mut next, &mut stack);
                    }
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
            at = after;
        }
        spend(visits.div_ceil(VISITS_PER_UNIT))?;
        Ok(found)
    }

    /// Adds a state and those it continues in without reading; returns the number of visited states.
    fn enter(
        &self,
        state: M::State,
        start: usize,
        at: usize,
        threads: &mut Threads<M::State>,
        stack: &mut Vec<M::State>,
    ) -> u64 {
        let mut visits = 0;
        stack.push(state);
        while let Some(state) = stack.pop() {
            visits += 1;
            if threads.insert(state, M::index(state), start) {
                self.machine.follow(state, at, stack);
            }
        }
        visits
    }
}

/// An NFA of `regex-automata` reading a text by bytes.
pub(super) struct ByteMachine<'s> {
    nfa: &'s NFA,
    text: &'s str,
    byte: Option<u8>,
}

impl<'s> ByteMachine<'s> {
    pub(super) fn new(nfa: &'s NFA, text: &'s str) -> Self {
        ByteMachine { nfa, text, byte: None }
    }
}

impl PatternAutomaton for ByteMachine<'_> {
    type State = StateID;

    fn states(&self) -> usize {
        self.nfa.states().len()
    }

    fn index(state: StateID) -> usize {
        state.as_usize()
    }

    fn start(&self) -> StateID {
        self.nfa.start_anchored()
    }

    fn is_anchored(&self) -> bool {
        self.nfa.is_always_start_anchored()
    }

    fn text(&self) -> &str {
        self.text
    }

    fn read(&mut self, at: usize) -> usize {
        self.byte = self.text.as_bytes().get(at).copied();
        at + 1
    }

    fn follow(&self, state: StateID, at: usize, stack: &mut Vec<StateID>) {
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

    fn step(&mut self, state: StateID, _: usize, visits: &mut u64) -> ThreadStep<StateID> {
        let target = match (self.nfa.state(state), self.byte) {
            (State::Match { .. }, _) => return ThreadStep::Match,
            (State::ByteRange { trans }, Some(byte)) => trans.matches_byte(byte).then_some(trans.next),
            (State::Sparse(ranges), Some(byte)) => {
                *visits += (ranges.transitions.len() / RANGES_PER_VISIT) as u64;
                ranges.matches_byte(byte)
            }
            (State::Dense(table), Some(byte)) => table.matches_byte(byte),
            _ => None,
        };
        target.map_or(ThreadStep::Dead, ThreadStep::To)
    }
}
