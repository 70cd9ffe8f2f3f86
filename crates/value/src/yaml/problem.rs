//! What is wrong, in the words of goyaml, because API clients and operators know them.

use super::{Error, Position};
use crate::{Value, go};

/// An error of the scanner: something cannot stand here. The first line is not named.
pub(super) fn scanner(position: Position, words: &str) -> Error {
    at_line(if position.line > 1 { position.line } else { 0 }, position, words)
}

/// An error of the parser: a token is not the expected one. goyaml counts lines from zero here, so it names the line before.
pub(super) fn parser(position: Position, words: &str) -> Error {
    at_line(position.line.saturating_sub(1), position, words)
}

fn at_line(line: usize, position: Position, words: &str) -> Error {
    let message = if line == 0 { format!("yaml: {words}") } else { format!("yaml: line {line}: {words}") };
    Error::new(message, position)
}

/// The longest value shown in a message.
const MAX_SHOWN: usize = 2000;

/// A value as Go's `%#v` shows what goyaml decoded.
pub(super) fn go_syntax(value: &Value) -> String {
    if value.is_null() {
        return "<nil>".to_owned();
    }
    go::syntax(value, "interface {}", MAX_SHOWN)
}

/// A string in Go's quotes.
pub(super) fn go_quoted(text: &str) -> String {
    let shown = text.char_indices().nth(MAX_SHOWN).and_then(|(end, _)| text.get(..end));
    go::quote(shown.unwrap_or(text))
}
