//! Regular expressions in Go's syntax.

use std::fmt;

use crate::eval::{Error, Outcome};
use crate::plan::node::PatternCall;
use crate::val::Val;

mod translate;

/// A compiled pattern.
#[derive(Clone)]
pub struct Pattern(regex::Regex);

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// How much memory a compiled pattern may take.
const MOST_MEMORY: usize = 4 << 20;

/// Compiles a pattern; the error is in Go's words.
pub(crate) fn compile(text: &str) -> Result<Pattern, String> {
    let translated = translate::translate(text)?;
    regex::RegexBuilder::new(&translated)
        .size_limit(MOST_MEMORY)
        .dfa_size_limit(MOST_MEMORY)
        .nest_limit(1001)
        .build()
        .map(Pattern)
        .map_err(|_| "error parsing regexp: expression too large".to_owned())
}

impl Pattern {
    /// Compiles a pattern; the error is in Go's words.
    pub fn compile(text: &str) -> Result<Self, String> {
        compile(text)
    }

    /// Whether it matches somewhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    pub(crate) fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.0.find(text).map(|found| found.as_str())
    }

    /// At most `limit` matches; all if it is negative.
    pub(crate) fn find_all<'t>(&self, text: &'t str, limit: i64) -> Vec<&'t str> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.0.find_iter(text).take(limit).map(|found| found.as_str()).collect()
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
