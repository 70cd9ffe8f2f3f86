//! Compiler-style reports of an expression's issues: the source line, the position underlined, and a hint.
//!
//! Used on terminals. API clients get cel-go's text, the `Display` of [`Issues`].

mod hint;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

pub use hint::nearest;

use crate::env::Env;
use crate::syntax::lexer::lex;
use crate::syntax::source::{Issue, Issues, Source};
use crate::syntax::token::{Token, TokenKind};

/// Upper bound of issues shown; the rest is counted.
const MAX_SHOWN: usize = 10;
/// Columns shown on either side of the position in a long line.
const CONTEXT_COLUMNS: usize = 60;

/// Formats the issues of an expression, each with its line underlined and hints. `origin` names the file or argument
/// that the expression comes from.
pub fn report(env: &Env, issues: &Issues, origin: &str) -> String {
    let source = issues.source();
    let (tokens, _) = lex(source, &mut Issues::new(source));
    let sorted = issues.sorted();
    let mut out = String::new();
    for (i, issue) in sorted.iter().take(MAX_SHOWN).enumerate() {
        if i > 0 {
            out.push('\n');
        }
        write_issue(&mut out, env, source, &tokens, issue, origin);
    }
    if issues.total() > MAX_SHOWN {
        let _ = write!(out, "\nand {} more problems\n", issues.total() - MAX_SHOWN);
    }
    out
}

fn write_issue(out: &mut String, env: &Env, source: &Source, tokens: &[Token], issue: &Issue, origin: &str) {
    let message = without_control_characters(issue.message.lines().next().unwrap_or_default());
    let _ = writeln!(out, "error: {message}");
    let offset = source.offset(issue.location);
    let at = offset.and_then(|offset| tokens.iter().position(|token| token.offset == offset));
    let hints = hint::hints(env, source, tokens, at, &issue.message);
    let line = source.line(issue.location.line);
    let Some((line, offset)) = line.zip(offset) else {
        for hint in hints {
            let _ = writeln!(out, " = help: {hint}");
        }
        return;
    };
    let column = usize::try_from(issue.location.column).unwrap_or(0);
    let (start, length) = underlined_range(source, tokens, at, &issue.message, offset);
    let start = column.saturating_sub((offset - start) as usize);
    let number = issue.location.line.to_string();
    let gutter = " ".repeat(number.len());
    let (line, start) = window(line, start);
    let length = length.min(line.chars().count().saturating_sub(start)).max(1);
    let _ = writeln!(out, "{gutter}--> {origin}:{number}:{}", column + 1);
    let _ = writeln!(out, "{gutter} |");
    let _ = writeln!(out, "{number} | {line}");
    let _ = writeln!(out, "{gutter} | {}{}", " ".repeat(start), "^".repeat(length));
    if !hints.is_empty() {
        let _ = writeln!(out, "{gutter} |");
    }
    for hint in hints {
        let _ = writeln!(out, "{gutter} = help: {hint}");
    }
}

/// Offset and length in code points of the text to underline.
fn underlined_range(
    source: &Source,
    tokens: &[Token],
    at: Option<usize>,
    message: &str,
    offset: u32,
) -> (u32, usize) {
    let length =
        |from: &Token, to: &Token| source.text().get(from.start..to.end).unwrap_or_default().chars().count();
    let Some(at) = at else { return (offset, 1) };
    let token = |at: usize| tokens.get(at);
    let Some(here) = token(at) else { return (offset, 1) };
    let name = at.checked_sub(1).and_then(token).filter(|token| token.kind == TokenKind::Identifier);
    match (here.kind, name) {
        // The position of a call is its parenthesis; underline its name instead.
        (TokenKind::LeftParen, Some(name)) if message.starts_with("undeclared") => {
            (name.offset, length(name, name))
        }
        (TokenKind::LeftParen, Some(name)) => {
            (name.offset, closing(tokens, at).map_or(1, |end| length(name, end)))
        }
        (TokenKind::LeftParen | TokenKind::LeftBracket | TokenKind::LeftBrace, _)
            if !message.starts_with("Syntax") =>
        {
            (offset, closing(tokens, at).map_or(1, |end| length(here, end)))
        }
        (TokenKind::Dot, _) => {
            let field =
                tokens.get(at + 1..).into_iter().flatten().find(|token| token.kind != TokenKind::Question);
            (offset, field.map_or(1, |field| length(here, field)))
        }
        _ => (offset, length(here, here).max(1)),
    }
}

/// The bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> Option<&Token> {
    let mut depth = 0usize;
    tokens.get(open..)?.iter().find(|token| {
        match token.kind {
            TokenKind::LeftParen | TokenKind::LeftBracket | TokenKind::LeftBrace => depth += 1,
            TokenKind::RightParen | TokenKind::RightBracket | TokenKind::RightBrace => {
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        depth == 0
    })
}

/// Cuts a long line around a column; returns the text and the column in it.
fn window(line: &str, column: usize) -> (String, usize) {
    let length = line.chars().count();
    if length <= 2 * CONTEXT_COLUMNS {
        return (without_control_characters(line), column);
    }
    let from = column.saturating_sub(CONTEXT_COLUMNS);
    let mut shown: String = line.chars().skip(from).take(2 * CONTEXT_COLUMNS).collect();
    if from + 2 * CONTEXT_COLUMNS < length {
        shown.push_str("...");
    }
    if from == 0 {
        return (without_control_characters(&shown), column);
    }
    (format!("...{}", without_control_characters(&shown)), column - from + 3)
}

/// Replaces control characters, one for one, so that output cannot move a terminal's cursor.
fn without_control_characters(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}
