//! Regular expressions in Go's syntax, with bounded work.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::iter::Searcher;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Input, Match, PatternID, meta};
use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::Hir;

pub use error::PatternError;
use error::too_large;

use crate::eval::{Error, EvalResult};
use crate::plan::node::PatternCall;
use crate::val::Val;

pub(crate) mod allowance;
mod cache;
mod chars;
mod error;
mod threads;
mod translate;
mod unicode;
mod weight;

/// A regular expression. Its matchers are compiled on first use.
pub struct Pattern {
    text: Arc<str>,
    /// The pattern in the syntax of the `regex` crate.
    translated: String,
    /// Work units of parsing and compiling the pattern.
    work: u64,
    /// Upper bound of its states.
    states: u64,
    /// The pattern for matching by characters, if it is too large for the engine and the NFA.
    chars: Option<Box<chars::CharPattern>>,
    /// The fast engine, which cannot be stopped; `None` if it cannot be built.
    engine: OnceLock<Option<meta::Regex>>,
    /// The NFA for counted matching, where the engine could take long; `None` if it cannot be built.
    automaton: OnceLock<Option<NFA>>,
    /// Number of uses so far; counts up to [`USES_BEFORE_TABLE`].
    uses: AtomicU32,
    /// The DFA for short texts; `None` if it would be too large.
    table: OnceLock<Option<Box<DfaTable>>>,
}

/// A dense DFA. It matches short texts in a third of the engine's time, without borrowing scratch space from a pool.
struct DfaTable {
    states: dense::DFA<Vec<u32>>,
    /// Bytes that every match begins with.
    prefix: Vec<u8>,
    /// DFA state after the prefix.
    after: StateID,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Upper bound of the work to parse, and of the work to compile, a pattern for the engine: about 20 ms and 4 MB. Larger
/// patterns are matched by characters.
const MAX_ENGINE_WORK: u64 = 200_000;
/// Upper bound of a pattern's length in the syntax of the `regex` crate, which bounds the memory of parsing it.
const MAX_BYTES: usize = 200_000;
/// Memory of the states that the lazy DFA caches while matching.
const MAX_LAZY_DFA_BYTES: usize = 1 << 20;
/// Nesting limit of the `regex` parser. Go's own limit is applied by the translation.
const MAX_NESTING: u32 = 1001;
/// Memory of a dense DFA and of building it, which bounds the build time too.
const MAX_TABLE_BYTES: usize = 32 << 10;
/// Memory of the NFA from which a dense DFA is built.
const MAX_TABLE_NFA_BYTES: usize = 16 << 10;
/// Upper bound of the prefix compared before the DFA runs.
const MAX_PREFIX_BYTES: usize = 64;
/// A pattern gets a DFA after this many uses.
const USES_BEFORE_TABLE: u32 = 16;
/// Longer texts are left to the engine, which has faster searches.
const MAX_TABLE_TEXT_BYTES: usize = 1024;

/// Upper bound of state visits for which the engine is used, some milliseconds. Beyond it matching is counted
/// instead, because the engine cannot be stopped.
const MAX_ENGINE_VISITS: u64 = 1 << 20;
/// Upper bound of NFA states for which the engine is used. Larger patterns rarely visit all their states, so counting
/// charges far less than the estimate would.
const MAX_ENGINE_STATES: u64 = 1 << 12;

trait MatchBudget {
    type Error: From<PatternError>;

    /// Spends the upper bound of a search's work if plenty is left, and returns true; otherwise spends nothing and
    /// returns false. Most searches take far less work than the bound.
    fn estimate(&mut self, units: u64) -> Result<bool, Self::Error>;

    /// Spends work units that a search has done.
    fn spend(&mut self, units: u64) -> Result<(), Self::Error>;
}

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

/// A budget of the caller. It must refuse everything after its first refusal.
struct CallerBudget<F>(F);

/// Why a search within a budget has no result.
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

/// Compiles a pattern written in a user's expression or schema, and charges its work to the allowances.
pub(crate) fn compile(text: &str) -> Result<Arc<Pattern>, PatternError> {
    if let Some(pattern) = allowance::already_paid(text) {
        return Ok(pattern);
    }
    let pattern = Arc::new(read(text, allowance::spend)?);
    allowance::remember(&pattern);
    Ok(pattern)
}

/// Compiles a pattern that comes from data. A cached pattern is charged like a new one.
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

/// Parses a pattern; calls `spend` before each part of the work.
fn read(text: &str, spend: impl Fn(u64) -> Result<(), PatternError>) -> Result<Pattern, PatternError> {
    let translated = translate::translate(text).map_err(PatternError::Syntax)?;
    if translated.len() > MAX_BYTES {
        return Err(too_large(text));
    }
    let paid = Cell::new(0_u64);
    let spend = |units: u64| {
        paid.set(paid.get().saturating_add(units));
        spend(units)
    };
    let mut states = None;
    let parsing = weight::parsing(&translated);
    if parsing <= MAX_ENGINE_WORK {
        spend(parsing + weight::BASE_UNITS)?;
        let compiling = weight::compiling(&parse(&translated).ok_or_else(|| unparsed(text, &translated))?);
        states = Some(compiling).filter(|compiling| *compiling <= MAX_ENGINE_WORK);
    } else {
        spend(translated.len() as u64 + weight::BASE_UNITS)?;
    }
    let chars = match states {
        Some(_) => None,
        None => {
            let ast = parse_ast(&translated).ok_or_else(|| unparsed(text, &translated))?;
            Some(chars::CharPattern::read(&translated, &ast, spend)?.ok_or_else(|| too_large(text))?)
        }
    };
    let states = states.or(chars.as_ref().map(chars::CharPattern::instructions)).unwrap_or(u64::MAX);
    spend(states)?;
    Ok(Pattern {
        text: text.into(),
        translated,
        work: paid.get(),
        states,
        chars: chars.map(Box::new),
        engine: OnceLock::new(),
        automaton: OnceLock::new(),
        uses: AtomicU32::new(0),
        table: OnceLock::new(),
    })
}

/// The error for a translated pattern that the `regex` crate does not parse.
fn unparsed(text: &str, translated: &str) -> PatternError {
    match ast_parser().parse(translated) {
        Err(error) if matches!(error.kind(), ast::ErrorKind::NestLimitExceeded(_)) => {
            PatternError::Syntax(format!("error parsing regexp: expression nests too deeply: `{text}`"))
        }
        _ => too_large(text),
    }
}

fn ast_parser() -> ast::parse::Parser {
    ast::parse::ParserBuilder::new().nest_limit(MAX_NESTING).build()
}

fn parse_ast(translated: &str) -> Option<Ast> {
    ast_parser().parse(translated).ok()
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
    /// Compiles a pattern of the server itself or of a stored schema: only its own size is bounded.
    pub fn compile(text: &str) -> Result<Self, PatternError> {
        read(text, |_| Ok(()))
    }

    /// Validates a pattern, within the current allowances ([`within`](allowance::within)).
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
        self.engine.get_or_init(|| build(&self.translated)).as_ref().ok_or_else(|| too_large(&self.text))
    }

    fn automaton(&self) -> Result<&NFA, PatternError> {
        self.automaton
            .get_or_init(|| automaton(&self.translated))
            .as_ref()
            .ok_or_else(|| too_large(&self.text))
    }

    /// Upper bound of state visits when searching a text of `length` bytes.
    fn max_visits(&self, length: usize) -> u64 {
        self.states.saturating_add(1).saturating_mul(length as u64)
    }

    /// True if the engine may be used for a search of up to `visits`.
    fn is_quick(&self, visits: u64) -> bool {
        self.chars.is_none() && visits <= MAX_ENGINE_VISITS && self.states <= MAX_ENGINE_STATES
    }

    /// True if the pattern matches anywhere in the text. For patterns of the server itself. A pattern that cannot be
    /// built matches nothing.
    pub fn is_match(&self, text: &str) -> bool {
        self.quick_match(text).unwrap_or(false)
    }

    /// True if the pattern matches anywhere in the text. `take` is called with work units of about 100 ns; if it
    /// returns false, the result is `None`. A pattern that cannot be built matches nothing.
    pub fn is_match_within(&self, text: &str, take: impl FnMut(u64) -> bool) -> Option<bool> {
        match self.matches(text, CallerBudget(take)) {
            Ok(matches) => Some(matches),
            Err(SearchStopped::Pattern) => Some(false),
            Err(SearchStopped::Refused) => None,
        }
    }

    /// True if the pattern matches anywhere in the text, within the current allowances.
    pub(crate) fn try_match(&self, text: &str) -> Result<bool, PatternError> {
        self.matches(text, ThreadAllowances)
    }

    fn matches<B: MatchBudget>(&self, text: &str, mut budget: B) -> Result<bool, B::Error> {
        let visits = self.max_visits(text.len());
        if self.is_quick(visits) && budget.estimate(visits / threads::VISITS_PER_UNIT)? {
            return Ok(self.quick_match(text)?);
        }
        let spend = &mut |units| budget.spend(units);
        Ok(self.counted_search(text, 0, true, spend)?.is_some())
    }

    /// Finds the first match at or after byte `from`, counting the visited states. With `earliest`, only whether there
    /// is a match is certain.
    fn counted_search<E: From<PatternError>>(
        &self,
        text: &str,
        from: usize,
        earliest: bool,
        spend: &mut impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        match &self.chars {
            Some(chars) => threads::ThreadSearch { machine: chars.machine(text), earliest }.run(from, spend),
            None => {
                let machine = threads::ByteMachine::new(self.automaton()?, text);
                threads::ThreadSearch { machine, earliest }.run(from, spend)
            }
        }
    }

    fn quick_match(&self, text: &str) -> Result<bool, PatternError> {
        if self.chars.is_some() {
            return Ok(self.counted_search(text, 0, true, &mut |_| Ok::<_, PatternError>(()))?.is_some());
        }
        if text.len() <= MAX_TABLE_TEXT_BYTES {
            match self.table.get() {
                Some(Some(table)) => return Ok(table.is_match(text.as_bytes())),
                Some(None) => {}
                // Only one of several threads builds the table, and none waits for it.
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

    /// Returns at most `limit` matches, or all if it is negative.
    pub(crate) fn find_all<'t>(&self, text: &'t str, limit: i64) -> Result<Vec<&'t str>, PatternError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // Each search may read to the end of the text.
        let visits = self.max_visits(text.len()).saturating_mul(limit.min(text.len()) as u64);
        if self.is_quick(visits) && allowance::estimate_match(visits / threads::VISITS_PER_UNIT) {
            let found = self.engine()?.find_iter(text).take(limit);
            return Ok(found.filter_map(|found| text.get(found.range())).collect());
        }
        self.find_all_counted(text, limit)
    }

    fn find_all_counted<'t>(&self, text: &'t str, limit: usize) -> Result<Vec<&'t str>, PatternError> {
        let mut refused = None;
        let mut searcher = Searcher::new(Input::new(text));
        let found = std::iter::from_fn(|| {
            searcher.advance(|input| {
                let range = match refused {
                    None => self.counted_search(text, input.start(), false, &mut allowance::spend_match),
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

/// Builds the DFA of a translated pattern; `None` if it is too large.
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
    // An empty match could be inside a code point, which the DFA does not check.
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

/// Calls a regular expression function with its compiled pattern.
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
