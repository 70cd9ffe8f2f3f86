//! Error messages in goyaml's wording, which API clients and operators know.

use super::{Error, Position};
use crate::text::first_chars;
use crate::{Value, go};

/// A scanner error. goyaml does not name the first line.
pub(super) fn scanner(position: Position, words: &str) -> Error {
    at_line(if position.line > 1 { position.line } else { 0 }, position, words)
}

/// A parser error. goyaml counts lines from zero here, so the message names the previous line.
pub(super) fn parser(position: Position, words: &str) -> Error {
    at_line(position.line.saturating_sub(1), position, words)
}

fn at_line(line: usize, position: Position, words: &str) -> Error {
    let message = if line == 0 { format!("yaml: {words}") } else { format!("yaml: line {line}: {words}") };
    Error::new(message, position)
}

/// Upper bound of a value quoted in a message, in bytes.
const MAX_SHOWN: usize = 2000;

/// Formats a value as Go's `%#v` prints what goyaml decoded.
pub(super) fn go_syntax(value: &Value) -> String {
    if value.is_null() {
        return "<nil>".to_owned();
    }
    go::syntax(value, "interface {}", MAX_SHOWN)
}

pub(super) fn go_quoted(text: &str) -> String {
    go::quote(first_chars(text, MAX_SHOWN))
}
