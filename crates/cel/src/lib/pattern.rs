//! Regular expressions in Go's syntax.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::iter::Searcher;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Input, Match, PatternID, meta};
use regex_syntax::hir::Hir;

use crate::eval::{Error, ErrorKind, EvalResult};
use crate::plan::node::PatternCall;
use crate::val::Val;

pub(crate) mod allowance;
mod cache;
mod threads;
mod translate;
mod unicode;
mod weight;

/// A pattern. What runs is compiled when the first text is matched.
pub struct Pattern {
    text: Box<str>,
    /// In the syntax of `regex`.
    translated: String,
    /// The units of work to parse and compile it.
    work: u64,
    /// At least as many as it has states when it is compiled.
    states: u64,
    /// `None` if it cannot be compiled after all.
    engine: OnceLock<Option<meta::Regex>>,
    /// The states that are visited one by one where the engine could take long; `None` if it cannot be compiled after all.
    automaton: OnceLock<Option<NFA>>,
    /// How often it was used before it got a table.
    uses: AtomicU32,
    /// `None` if it would be large.
    table: OnceLock<Option<Box<DfaTable>>>,
}

/// Why a text is not a pattern that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// In Go's words.
    Syntax(String),
    /// One pattern is too large.
    TooLarge,
    /// Compiling all patterns together is too much work.
    Exhausted(allowance::PatternWorkLimit),
    /// Matching texts with them is too much work.
    Unmatched(allowance::PatternWorkLimit),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::Syntax(error) => f.write_str(error),
            PatternError::TooLarge => write!(
                f,
                "error parsing regexp: expression too large: compiling it takes more than {MAX_WORK} units of work"
            ),
            PatternError::Exhausted(limit) => write!(
                f,
                "error parsing regexp: compiling the regular expressions of {} takes more than {} units of work",
                limit.whose, limit.units
            ),
            PatternError::Unmatched(limit) => write!(
                f,
                "matching the regular expressions of {} takes more than {} units of work; use shorter texts, or smaller numbers of repetitions",
                limit.whose, limit.matching
            ),
        }
    }
}

impl std::error::Error for PatternError {}

impl From<PatternError> for Error {
    fn from(error: PatternError) -> Self {
        match error {
            // Nothing in the expression makes up for that.
            PatternError::Exhausted(_) | PatternError::Unmatched(_) => {
                Error::of(ErrorKind::PatternLimit(error.to_string().into()))
            }
            PatternError::Syntax(_) | PatternError::TooLarge => Error::new(error.to_string()),
        }
    }
}

/// A pattern as a table of states. Short texts are matched in a third of the time, and no scratch space is borrowed from a pool.
struct DfaTable {
    states: dense::DFA<Vec<u32>>,
    /// What every text that matches begins with.
    prefix: Vec<u8>,
    /// The state after it.
    after: StateID,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How much work it may be to parse a pattern, and how much to compile it: about 20 ms, and 4 MB of memory.
const MAX_WORK: u64 = 200_000;
/// How much memory the states may take that are made while a pattern is matched.
const MAX_LAZY_DFA_BYTES: usize = 1 << 20;
/// How deep a translated pattern may nest; Go's limit is applied by the translation.
const MAX_NESTING: u32 = 1001;
/// How much memory a table and the making of it may take. This bounds the time it takes to make one too.
const MAX_TABLE_BYTES: usize = 32 << 10;
/// How large a pattern may be, compiled, to get a table.
const MAX_TABLE_NFA_BYTES: usize = 16 << 10;
/// How much of a text is compared at once.
const MAX_PREFIX_BYTES: usize = 64;
/// How often a pattern is used before it gets a table.
const USES_BEFORE_TABLE: u32 = 16;
/// Longer texts are left to the engine that can skip through them.
const MAX_TABLE_TEXT_BYTES: usize = 1024;

/// How many visits of states the engine may need for a text, at most some milliseconds. Where it could be more the states are visited
/// one by one: the engine cannot be stopped.
const MAX_ENGINE_VISITS: u64 = 1 << 20;
/// How many states a pattern may have for that. Of more only few are ever visited, and counting them is far less than the estimate.
const MAX_ENGINE_STATES: u64 = 1 << 12;

/// Limits the work of matching texts with patterns.
trait MatchBudget {
    type Error: From<PatternError>;

    /// Spends the upper bound of the work of a search if plenty is left, and returns `true`; otherwise spends nothing and returns `false`.
    /// Most searches are far less work than the bound.
    fn estimate(&mut self, units: u64) -> Result<bool, Self::Error>;

    /// Spends the work that a search has done.
    fn spend(&mut self, units: u64) -> Result<(), Self::Error>;
}

/// The allowances of this thread.
struct ThreadAllowances;

impl MatchBudget for ThreadAllowances {
    type Error = PatternError;

    fn estimate(&mut self, units: u64) -> Result<bool, PatternError> {
        Ok(allowance::estimate_match(units))
    }

    fn spend(&mut self, units: u64) -> Result<(), PatternError> {
        allowance::spend_match(units)
    }
}

/// A budget outside; it gives no more after it refused once.
struct CallerBudget<F>(F);

/// Why a search in a budget has no result.
enum SearchStopped {
    Refused,
    Pattern,
}

impl From<PatternError> for SearchStopped {
    fn from(_: PatternError) -> Self {
        SearchStopped::Pattern
    }
}

impl<F: FnMut(u64) -> bool> MatchBudget for CallerBudget<F> {
    type Error = SearchStopped;

    fn estimate(&mut self, units: u64) -> Result<bool, SearchStopped> {
        self.spend(units).map(|()| true)
    }

    fn spend(&mut self, units: u64) -> Result<(), SearchStopped> {
        if (self.0)(units) { Ok(()) } else { Err(SearchStopped::Refused) }
    }
}

/// A pattern that is written in an expression or a schema that somebody brings; its work is taken from the allowances.
pub(crate) fn compile(text: &str) -> Result<Arc<Pattern>, PatternError> {
    if let Some(pattern) = allowance::already_paid(text) {
        return Ok(pattern);
    }
    let pattern = Arc::new(read(text, allowance::spend)?);
    allowance::remember(&pattern);
    Ok(pattern)
}

/// A pattern that an evaluation takes from data. It may be kept from an earlier evaluation, but counts all the same.
pub(crate) fn compile_data(text: &str) -> Result<Arc<Pattern>, PatternError> {
    if let Some(pattern) = allowance::already_paid(text) {
        return Ok(pattern);
    }
    let pattern = match cache::get(text) {
        Some(pattern) => {
            allowance::spend(pattern.work)?;
            pattern
        }
        None => {
            let pattern = Arc::new(read(text, allowance::spend)?);
            cache::put(&pattern);
            pattern
        }
    };
    allowance::remember(&pattern);
    Ok(pattern)
}

/// Reads a pattern and says what its parts take before each is done.
fn read(text: &str, spend: impl Fn(u64) -> Result<(), PatternError>) -> Result<Pattern, PatternError> {
    let translated = translate::translate(text).map_err(PatternError::Syntax)?;
    let parsing = weight::parsing(&translated);
    if parsing > MAX_WORK {
        return Err(PatternError::TooLarge);
    }
    spend(parsing + weight::BASE_UNITS)?;
    let hir = parse(&translated).ok_or(PatternError::TooLarge)?;
    let compiling = weight::compiling(&hir);
    if compiling > MAX_WORK {
        return Err(PatternError::TooLarge);
    }
    spend(compiling)?;
    Ok(Pattern {
        text: text.into(),
        translated,
        work: parsing + weight::BASE_UNITS + compiling,
        states: compiling,
        engine: OnceLock::new(),
        automaton: OnceLock::new(),
        uses: AtomicU32::new(0),
        table: OnceLock::new(),
    })
}

fn parse(translated: &str) -> Option<Hir> {
    regex_syntax::ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(translated).ok()
}

fn build(translated: &str) -> Option<meta::Regex> {
    let config = meta::Config::new()
        .which_captures(WhichCaptures::Implicit)
        .nfa_size_limit(None)
        .hybrid_cache_capacity(MAX_LAZY_DFA_BYTES);
    meta::Regex::builder().configure(config).build_from_hir(&parse(translated)?).ok()
}

fn automaton(translated: &str) -> Option<NFA> {
    let config = thompson::Config::new().which_captures(WhichCaptures::None).nfa_size_limit(None);
    thompson::Compiler::new().configure(config).build_from_hir(&parse(translated)?).ok()
}

impl Pattern {
    /// Reads a pattern that is part of the server or of a stored schema: only its own size is bounded.
    pub fn compile(text: &str) -> Result<Self, PatternError> {
        read(text, |_| Ok(()))
    }

    /// Says whether a text is a pattern, within the allowances that apply ([`within`](allowance::within)).
    pub fn check(text: &str) -> Result<(), PatternError> {
        compile(text).map(drop)
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn work(&self) -> u64 {
        self.work
    }

    fn engine(&self) -> Result<&meta::Regex, PatternError> {
        self.engine.get_or_init(|| build(&self.translated)).as_ref().ok_or(PatternError::TooLarge)
    }

    fn automaton(&self) -> Result<&NFA, PatternError> {
        self.automaton.get_or_init(|| automaton(&self.translated)).as_ref().ok_or(PatternError::TooLarge)
    }

    /// The most visits of states that a search in a text of so many bytes can be.
    fn max_visits(&self, length: usize) -> u64 {
        self.states.saturating_add(1).saturating_mul(length as u64)
    }

    /// Whether the engine is quick, even if it needs so many visits.
    fn is_quick(&self, visits: u64) -> bool {
        visits <= MAX_ENGINE_VISITS && self.states <= MAX_ENGINE_STATES
    }

    /// Whether it matches somewhere in a text; for patterns that are part of the server. What cannot be compiled after all matches
    /// nothing.
    pub fn is_match(&self, text: &str) -> bool {
        self.quick_match(text).unwrap_or(false)
    }

    /// Whether it matches somewhere in a text. `take` is asked for the work, in units of about 100 ns; if it refuses there is no
    /// answer. What cannot be compiled after all matches nothing.
    pub fn is_match_within(&self, text: &str, take: impl FnMut(u64) -> bool) -> Option<bool> {
        match self.matches(text, CallerBudget(take)) {
            Ok(matches) => Some(matches),
            Err(SearchStopped::Pattern) => Some(false),
            Err(SearchStopped::Refused) => None,
        }
    }

    /// Whether it matches somewhere in a text, within the allowances that apply.
    pub(crate) fn try_match(&self, text: &str) -> Result<bool, PatternError> {
        self.matches(text, ThreadAllowances)
    }

    fn matches<B: MatchBudget>(&self, text: &str, mut budget: B) -> Result<bool, B::Error> {
        let visits = self.max_visits(text.len());
        if self.is_quick(visits) && budget.estimate(visits / threads::VISITS_PER_UNIT)? {
            return Ok(self.quick_match(text)?);
        }
        let search = threads::NfaSearch { nfa: self.automaton()?, text, earliest: true };
        Ok(search.run(0, &mut |units| budget.spend(units))?.is_some())
    }

    fn quick_match(&self, text: &str) -> Result<bool, PatternError> {
        if text.len() <= MAX_TABLE_TEXT_BYTES {
            match self.table.get() {
                Some(Some(table)) => return Ok(table.is_match(text.as_bytes())),
                Some(None) => {}
                // Of several threads only one makes it, and none waits.
                None => {
                    if self.uses.fetch_add(1, Ordering::Relaxed) == USES_BEFORE_TABLE {
                        let _ = self.table.set(build_table(&self.translated));
                    }
                }
            }
        }
        Ok(self.engine()?.is_match(text))
    }

    pub(crate) fn find<'t>(&self, text: &'t str) -> Result<Option<&'t str>, PatternError> {
        Ok(self.find_all(text, 1)?.pop())
    }

    /// At most `limit` matches; all if it is negative.
    pub(crate) fn find_all<'t>(&self, text: &'t str, limit: i64) -> Result<Vec<&'t str>, PatternError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // Each search may go to the end of the text.
        let visits = self.max_visits(text.len()).saturating_mul(limit.min(text.len()) as u64);
        if self.is_quick(visits) && allowance::estimate_match(visits / threads::VISITS_PER_UNIT) {
            let found = self.engine()?.find_iter(text).take(limit);
            return Ok(found.filter_map(|found| text.get(found.range())).collect());
        }
        self.find_all_counted(text, limit)
    }

    fn find_all_counted<'t>(&self, text: &'t str, limit: usize) -> Result<Vec<&'t str>, PatternError> {
        let search = threads::NfaSearch { nfa: self.automaton()?, text, earliest: false };
        let mut refused = None;
        let mut searcher = Searcher::new(Input::new(text));
        let found = std::iter::from_fn(|| {
            searcher.advance(|input| {
                let range = match refused {
                    None => search.run(input.start(), &mut allowance::spend_match),
                    Some(_) => Ok(None),
                };
                let range = range.unwrap_or_else(|error| {
                    refused = Some(error);
                    None
                });
                Ok(range.map(|range| Match::new(PatternID::ZERO, range)))
            })
        });
        let found = found.take(limit).filter_map(|found| text.get(found.range())).collect();
        match refused {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }
}

/// The table of a pattern in the syntax of `regex`, if it is small.
fn build_table(pattern: &str) -> Option<Box<DfaTable>> {
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .accelerate(false)
        .dfa_size_limit(Some(MAX_TABLE_BYTES))
        .determinize_size_limit(Some(MAX_TABLE_BYTES));
    let states = dense::Builder::new()
        .configure(config)
        .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_TABLE_NFA_BYTES)))
        .build(pattern)
        .ok()?;
    // What matches nothing at all could match inside a character: that takes more care.
    if states.has_empty() {
        return None;
    }
    let mut after = states.start_state(&start::Config::new()).ok()?;
    let mut prefix = Vec::new();
    while prefix.len() < MAX_PREFIX_BYTES && !states.is_special_state(after) {
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
    Some(Box::new(DfaTable { states, prefix, after }))
}

impl DfaTable {
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
pub(crate) fn run<'a>(kind: PatternCall, pattern: &Pattern, args: &[Val<'a>]) -> EvalResult<'a> {
    let Some(Val::String(text)) = args.first() else { return Err(Error::no_such_overload()) };
    match kind {
        PatternCall::Matches => Ok(Val::Bool(pattern.try_match(text)?)),
        PatternCall::Find => Ok(Val::string(pattern.find(text)?.unwrap_or_default())),
        PatternCall::FindAll => {
            let limit = match args.get(2) {
                None => -1,
                Some(Val::Int(limit)) => *limit,
                Some(_) => return Err(Error::no_such_overload()),
            };
            Ok(Val::strings(pattern.find_all(text, limit)?))
        }
    }
}

#[cfg(test)]
mod tests;
