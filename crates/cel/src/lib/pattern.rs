//! Regular expressions in Go's syntax.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;

use crate::eval::{Error, Outcome};
use crate::plan::node::PatternCall;
use crate::val::Val;

mod translate;
mod unicode;

/// A compiled pattern.
pub struct Pattern {
    regex: regex::Regex,
    /// How often it was used before it got a table.
    uses: AtomicU32,
    /// `None` if it would be large.
    table: OnceLock<Option<Box<Table>>>,
}

/// A pattern as a table of states. Short texts are matched in a third of the time, and no scratch space is borrowed from a pool.
struct Table {
    states: dense::DFA<Vec<u32>>,
    /// What every text that matches begins with.
    prefix: Vec<u8>,
    /// The state after it.
    after: StateID,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.regex.as_str())
    }
}

/// How much memory a compiled pattern may take.
const MOST_MEMORY: usize = 4 << 20;
/// How much memory a table and the making of it may take. This bounds the time it takes to make one too.
const MOST_TABLE: usize = 32 << 10;
/// How large a pattern may be, compiled, to get a table.
const MOST_STATES: usize = 16 << 10;
/// How much of a text is compared at once.
const LONGEST_PREFIX: usize = 64;
/// How often a pattern is used before it gets a table.
const OFTEN: u32 = 16;
/// Longer texts are left to the engine that can skip through them.
const SHORT: usize = 1024;

/// Compiles a pattern; the error is in Go's words.
pub(crate) fn compile(text: &str) -> Result<Pattern, String> {
    let translated = translate::translate(text)?;
    regex::RegexBuilder::new(&translated)
        .size_limit(MOST_MEMORY)
        .dfa_size_limit(MOST_MEMORY)
        .nest_limit(1001)
        .build()
        .map(|regex| Pattern { regex, uses: AtomicU32::new(0), table: OnceLock::new() })
        .map_err(|_| "error parsing regexp: expression too large".to_owned())
}

impl Pattern {
    /// Compiles a pattern; the error is in Go's words.
    pub fn compile(text: &str) -> Result<Self, String> {
        compile(text)
    }

    /// Whether it matches somewhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        if text.len() <= SHORT {
            match self.table.get() {
                Some(Some(table)) => return table.is_match(text.as_bytes()),
                Some(None) => {}
                // Of several threads only one makes it, and none waits.
                None => {
                    if self.uses.fetch_add(1, Ordering::Relaxed) == OFTEN {
                        let _ = self.table.set(tabulate(self.regex.as_str()));
                    }
                }
            }
        }
        self.regex.is_match(text)
    }

    pub(crate) fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex.find(text).map(|found| found.as_str())
    }

    /// At most `limit` matches; all if it is negative.
    pub(crate) fn find_all<'t>(&self, text: &'t str, limit: i64) -> Vec<&'t str> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.regex.find_iter(text).take(limit).map(|found| found.as_str()).collect()
    }
}

/// The table of a pattern in the syntax of `regex`, if it is small.
fn tabulate(pattern: &str) -> Option<Box<Table>> {
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .accelerate(false)
        .dfa_size_limit(Some(MOST_TABLE))
        .determinize_size_limit(Some(MOST_TABLE));
    let states = dense::Builder::new()
        .configure(config)
        .thompson(thompson::Config::new().nfa_size_limit(Some(MOST_STATES)))
        .build(pattern)
        .ok()?;
    // What matches nothing at all could match inside a character: that takes more care.
    if states.has_empty() {
        return None;
    }
    let mut after = states.start_state(&start::Config::new()).ok()?;
    let mut prefix = Vec::new();
    while prefix.len() < LONGEST_PREFIX && !states.is_special_state(after) {
        let mut live = (0..=u8::MAX)
            .map(|byte| (byte, states.next_state(after, byte)))
            .filter(|(_, next)| !states.is_dead_state(*next));
        let (Some((byte, next)), None) = (live.next(), live.next()) else { break };
        let ended = states.next_eoi_state(after);
        if !states.is_dead_state(ended) || states.is_special_state(next) {
            break;
        }
        prefix.push(byte);
        after = next;
    }
    Some(Box::new(Table { states, prefix, after }))
}

impl Table {
    fn is_match(&self, text: &[u8]) -> bool {
        let Some(rest) = text.strip_prefix(self.prefix.as_slice()) else { return false };
        let mut state = self.after;
        for byte in rest {
            state = self.states.next_state(state, *byte);
            if self.states.is_special_state(state) {
                if self.states.is_match_state(state) {
                    return true;
                }
                if self.states.is_dead_state(state) {
                    return false;
                }
            }
        }
        self.states.is_match_state(self.states.next_eoi_state(state))
    }
}

/// Runs a call whose pattern was compiled before.
pub(crate) fn run<'a>(kind: PatternCall, pattern: &Pattern, args: &[Val<'a>]) -> Outcome<'a> {
    let Some(Val::String(text)) = args.first() else { return Err(Error::no_such_overload()) };
    match kind {
        PatternCall::Matches => Ok(Val::Bool(pattern.is_match(text))),
        PatternCall::Find => Ok(Val::string(pattern.find(text).unwrap_or_default())),
        PatternCall::FindAll => {
            let limit = match args.get(2) {
                None => -1,
                Some(Val::Int(limit)) => *limit,
                Some(_) => return Err(Error::no_such_overload()),
            };
            Ok(Val::strings(pattern.find_all(text, limit)))
        }
    }
}

#[cfg(test)]
mod tests;
