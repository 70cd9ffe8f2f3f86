//! The lexer. Longest match wins; text that is not a token is reported and skipped, as ANTLR does.

use std::ops::Range;

use super::source::{Issues, Source};
use super::token::{Token, TokenKind};

/// Splits an expression into tokens, the last of which is [`TokenKind::Eof`]. Also returns the byte ranges that are
/// not tokens, which are reported to `issues`.
pub(crate) fn lex(source: &Source, issues: &mut Issues) -> (Vec<Token>, Vec<Range<usize>>) {
    let mut skipped = Vec::new();
    let mut lexer = Lexer { text: source.text(), at: 0, offset: 0 };
    let mut tokens = Vec::with_capacity(source.text().len() / 3 + 2);
    while let Some(first) = lexer.rest().chars().next() {
        let start = lexer.at;
        let offset = lexer.offset;
        match lexer.scan(first) {
            LexerStep::Hidden(length) => lexer.advance(length),
            LexerStep::Token(kind, length) => {
                lexer.advance(length);
                tokens.push(Token { kind, start, end: lexer.at, offset });
            }
            LexerStep::Error(length) => {
                // ANTLR reports all the text it consumed before it failed, and continues after it.
                lexer.advance(length.max(first.len_utf8()));
                skipped.push(start..lexer.at);
                let text = source.text().get(start..lexer.at).unwrap_or_default();
                issues.report(
                    source.location(offset),
                    format!("Syntax error: token recognition error at: '{text}'"),
                );
            }
        }
    }
    tokens.push(Token { kind: TokenKind::Eof, start: lexer.at, end: lexer.at, offset: lexer.offset });
    (tokens, skipped)
}

struct Lexer<'s> {
    text: &'s str,
    at: usize,
    offset: u32,
}

enum LexerStep {
    /// White space or a comment of this many bytes.
    Hidden(usize),
    /// A token of this many bytes.
    Token(TokenKind, usize),
    /// Text that is not a token: this many bytes were consumed before the failure.
    Error(usize),
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) {
        let passed = self.rest().get(..bytes).unwrap_or_default();
        self.offset += u32::try_from(passed.chars().count()).unwrap_or(u32::MAX);
        self.at += bytes;
    }

    fn scan(&self, first: char) -> LexerStep {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let second = bytes.get(1).copied().unwrap_or(0);
        let one = |kind| LexerStep::Token(kind, 1);
        let pair = |next: u8, two: TokenKind, alone: TokenKind| {
            if second == next { LexerStep::Token(two, 2) } else { one(alone) }
        };
        match first {
            ' ' | '\t' | '\r' | '\n' | '\u{c}' => LexerStep::Hidden(
                bytes.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0c)).count(),
            ),
            '/' if second == b'/' => LexerStep::Hidden(rest.find('\n').unwrap_or(rest.len())),
            '=' if second == b'=' => LexerStep::Token(TokenKind::Equals, 2),
            '!' => pair(b'=', TokenKind::NotEquals, TokenKind::Not),
            '<' => pair(b'=', TokenKind::LessEquals, TokenKind::Less),
            '>' => pair(b'=', TokenKind::GreaterEquals, TokenKind::Greater),
            '&' if second == b'&' => LexerStep::Token(TokenKind::And, 2),
            '|' if second == b'|' => LexerStep::Token(TokenKind::Or, 2),
            '=' | '&' | '|' => self.failed_token(1),
            '[' => one(TokenKind::LeftBracket),
            ']' => one(TokenKind::RightBracket),
            '{' => one(TokenKind::LeftBrace),
            '}' => one(TokenKind::RightBrace),
            '(' => one(TokenKind::LeftParen),
            ')' => one(TokenKind::RightParen),
            '.' if second.is_ascii_digit() => {
                let digits = 1 + count_digits(bytes.get(1..));
                LexerStep::Token(TokenKind::Float, digits + exponent(bytes.get(digits..)))
            }
            '.' => one(TokenKind::Dot),
            ',' => one(TokenKind::Comma),
            '-' => one(TokenKind::Minus),
            '?' => one(TokenKind::Question),
            ':' => one(TokenKind::Colon),
            '+' => one(TokenKind::Plus),
            '*' => one(TokenKind::Star),
            '/' => one(TokenKind::Slash),
            '%' => one(TokenKind::Percent),
            '0'..='9' => number(bytes),
            '"' | '\'' => match quoted_length(rest, false) {
                Ok(length) => LexerStep::Token(TokenKind::String, length),
                Err(tried) => self.failed_token(tried),
            },
            '`' => {
                let inner = bytes
                    .iter()
                    .skip(1)
                    .take_while(|b| {
                        b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ')
                    })
                    .count();
                if inner > 0 && bytes.get(inner + 1) == Some(&b'`') {
                    LexerStep::Token(TokenKind::EscapedIdentifier, inner + 2)
                } else {
                    self.failed_token(1 + inner)
                }
            }
            'a'..='z' | 'A'..='Z' | '_' => self.word(),
            _ => self.failed_token(0),
        }
    }

    /// Ends a failed token. The error includes the character after the `tried` bytes.
    fn failed_token(&self, tried: usize) -> LexerStep {
        let next = self.rest().get(tried..).and_then(|rest| rest.chars().next());
        LexerStep::Error(tried + next.map_or(0, char::len_utf8))
    }

    /// An identifier, a keyword, or a string with a prefix.
    fn word(&self) -> LexerStep {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let prefix = bytes.iter().take_while(|b| matches!(b, b'r' | b'R' | b'b' | b'B')).count();
        let length = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        if prefix == length && matches!(bytes.get(prefix), Some(b'"' | b'\'')) {
            let (is_bytes, raw) = match rest.get(..prefix).unwrap_or_default() {
                "r" | "R" => (false, true),
                "b" | "B" => (true, false),
                "br" | "bR" | "Br" | "BR" => (true, true),
                _ => return LexerStep::Token(TokenKind::Identifier, length),
            };
            return match quoted_length(rest.get(prefix..).unwrap_or_default(), raw) {
                Ok(string) => LexerStep::Token(
                    if is_bytes { TokenKind::Bytes } else { TokenKind::String },
                    prefix + string,
                ),
                Err(_) => LexerStep::Token(TokenKind::Identifier, length),
            };
        }
        LexerStep::Token(
            match rest.get(..length).unwrap_or_default() {
                "in" => TokenKind::In,
                "true" => TokenKind::True,
                "false" => TokenKind::False,
                "null" => TokenKind::Null,
                _ => TokenKind::Identifier,
            },
            length,
        )
    }
}

fn count_digits(bytes: Option<&[u8]>) -> usize {
    bytes.unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count()
}

/// Length of the exponent that `bytes` begins with, or 0.
fn exponent(bytes: Option<&[u8]>) -> usize {
    let bytes = bytes.unwrap_or_default();
    let sign = match bytes {
        [b'e' | b'E', b'+' | b'-', ..] => 2,
        [b'e' | b'E', ..] => 1,
        _ => return 0,
    };
    match count_digits(bytes.get(sign..)) {
        0 => 0,
        digits => sign + digits,
    }
}

fn number(bytes: &[u8]) -> LexerStep {
    let unsigned = |length: usize| match bytes.get(length) {
        Some(b'u' | b'U') => LexerStep::Token(TokenKind::Uint, length + 1),
        _ => LexerStep::Token(TokenKind::Int, length),
    };
    if let [b'0', b'x', ..] = bytes {
        let hex = bytes.iter().skip(2).take_while(|b| b.is_ascii_hexdigit()).count();
        if hex > 0 {
            return unsigned(hex + 2);
        }
    }
    let digits = count_digits(Some(bytes));
    if bytes.get(digits) == Some(&b'.') {
        let fraction = count_digits(bytes.get(digits + 1..));
        if fraction > 0 {
            let length = digits + 1 + fraction;
            return LexerStep::Token(TokenKind::Float, length + exponent(bytes.get(length..)));
        }
    }
    match exponent(bytes.get(digits..)) {
        0 => unsigned(digits),
        more => LexerStep::Token(TokenKind::Float, digits + more),
    }
}

/// Length of the quoted string that `text` begins with, or the number of bytes consumed before the failure.
fn quoted_length(text: &str, raw: bool) -> Result<usize, usize> {
    let quote = if text.starts_with('"') { '"' } else { '\'' };
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let long = text.strip_prefix(triple.as_str()).and_then(|inner| {
        let mut at = 0;
        loop {
            let rest = inner.get(at..)?;
            if rest.starts_with(triple.as_str()) {
                return Some(3 + at + 3);
            }
            let c = rest.chars().next()?;
            at += if c == '\\' && !raw { escape_length(rest).ok()? } else { c.len_utf8() };
        }
    });
    if let Some(length) = long {
        return Ok(length);
    }
    let mut at = 1;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        match rest.chars().next() {
            Some(c) if c == quote => {
                // The text may also begin with an unterminated triple quote; the longest valid match is the short
                // string.
                return Ok(at + 1);
            }
            None | Some('\n' | '\r') => return Err(long_attempt(text, &triple).max(at)),
            Some('\\') if !raw => match escape_length(rest) {
                Ok(length) => at += length,
                Err(tried) => return Err(at + tried),
            },
            Some(c) => at += c.len_utf8(),
        }
    }
}

fn long_attempt(text: &str, triple: &str) -> usize {
    if text.starts_with(triple) { text.len() } else { 0 }
}

/// Length of the escape sequence that `text` begins with, or the number of bytes consumed before the failure.
fn escape_length(text: &str) -> Result<usize, usize> {
    let bytes = text.as_bytes();
    let hex = |count: usize| {
        let found = bytes.iter().skip(2).take(count).take_while(|b| b.is_ascii_hexdigit()).count();
        if found == count { Ok(2 + count) } else { Err(2 + found) }
    };
    match bytes.get(1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(2),
        Some(b'x' | b'X') => hex(2),
        Some(b'u') => hex(4),
        Some(b'U') => hex(8),
        Some(b'0'..=b'3') => {
            let found = bytes.iter().skip(2).take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
            if found == 2 { Ok(4) } else { Err(2 + found) }
        }
        _ => Err(1),
    }
}
