//! Why a pattern cannot be used.

use std::fmt;

use super::allowance;
use crate::eval::{Error, ErrorKind};

/// The reason why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// Invalid syntax or too large, with Go's error message.
    Syntax(String),
    /// Compiling all patterns together exceeds the limit.
    Exhausted(allowance::PatternWorkLimit),
    /// Matching texts exceeds the limit.
    Unmatched(allowance::PatternWorkLimit),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::Syntax(error) => f.write_str(error),
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
            // Nothing in the expression may absorb an exceeded limit.
            PatternError::Exhausted(_) | PatternError::Unmatched(_) => {
                Error::of(ErrorKind::PatternLimit(error.to_string().into()))
            }
            PatternError::Syntax(_) => Error::new(error.to_string()),
        }
    }
}

/// Go's error for a pattern that is too large.
pub(super) fn too_large(text: &str) -> PatternError {
    PatternError::Syntax(format!("error parsing regexp: expression too large: `{text}`"))
}
