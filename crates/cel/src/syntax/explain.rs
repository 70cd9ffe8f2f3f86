//! Syntax errors in ANTLR's words.

use super::source::{Issues, Source};
use super::token::Token;

/// Reports the syntax errors of an expression that the parser refused.
pub(crate) fn explain(source: &Source, tokens: &[Token], issues: &mut Issues) {
    let _ = tokens;
    if issues.is_empty() {
        issues.report(source.location(0), "Syntax error: unexpected input");
    }
}
