//! Parses label selectors, with Kubernetes' error messages.

use std::collections::BTreeSet;

use value::{Path, Str};

use super::labels::{LabelOperator, LabelRequirement, key_error};
use crate::field::aggregate;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorToken {
    Unknown,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

fn token(text: &str) -> Option<SelectorToken> {
    Some(match text {
        ")" => SelectorToken::Close,
        "," => SelectorToken::Comma,
        "!" => SelectorToken::Not,
        "==" => SelectorToken::DoubleEquals,
        "=" => SelectorToken::Equals,
        ">" => SelectorToken::Greater,
        "in" => SelectorToken::In,
        "<" => SelectorToken::Less,
        "!=" => SelectorToken::NotEquals,
        "notin" => SelectorToken::NotIn,
        "(" => SelectorToken::Open,
        _ => return None,
    })
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Splits the text into tokens. `in` and `notin` are identifiers here; the parser distinguishes them by position.
fn scan(text: &str) -> Vec<(SelectorToken, Str)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while let Some(first) = rest.chars().next() {
        // Each run of special characters is searched once, so that scanning stays linear.
        let end = if is_special(first) {
            // The longest token that begins here; every special character is a token by itself.
            [2, 1].into_iter().find(|n| rest.get(..*n).is_some_and(|t| token(t).is_some())).unwrap_or(1)
        } else {
            rest.find(|c| is_special(c) || is_blank(c)).unwrap_or(rest.len())
        };
        let (text, after) = rest.split_at(end);
        let unknown = if is_special(first) { SelectorToken::Unknown } else { SelectorToken::Identifier };
        tokens.push((token(text).unwrap_or(unknown), text.into()));
        rest = after.trim_start_matches(is_blank);
    }
    tokens
}

struct SelectorParser {
    tokens: std::iter::Peekable<std::vec::IntoIter<(SelectorToken, Str)>>,
}

/// Parses all requirements of a selector.
pub(super) fn requirements(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut parser = SelectorParser { tokens: scan(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (SelectorToken::Identifier | SelectorToken::Not, _) => {
                let requirement =
                    parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                requirements.push(requirement);
                match parser.next() {
                    (SelectorToken::End, _) => return Ok(requirements),
                    (SelectorToken::Comma, _) => {
                        let (next, text) = parser.peek();
                        if !matches!(next, SelectorToken::Identifier | SelectorToken::Not) {
                            return Err(format!("found '{text}', expected: identifier after ','"));
                        }
                    }
                    (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
                }
            }
            (SelectorToken::End, _) => return Ok(requirements),
            (_, text) => {
                return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
            }
        }
    }
}

impl SelectorParser {
    /// The next token where a key or value is expected: `in` and `notin` are identifiers there.
    fn peek(&mut self) -> (SelectorToken, Str) {
        let (token, text) = self.tokens.peek().cloned().unwrap_or((SelectorToken::End, Str::default()));
        (
            if matches!(token, SelectorToken::In | SelectorToken::NotIn) {
                SelectorToken::Identifier
            } else {
                token
            },
            text,
        )
    }

    fn next(&mut self) -> (SelectorToken, Str) {
        let next = self.peek();
        self.tokens.next();
        next
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == SelectorToken::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != SelectorToken::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(error) = key_error(&key, &Path::root()) {
            return Err(error.to_string());
        }
        let ends = matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma);
        let (operator, values) = if negated {
            (LabelOperator::DoesNotExist, BTreeSet::new())
        } else if ends {
            (LabelOperator::Exists, BTreeSet::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                LabelOperator::In | LabelOperator::NotIn => self.values()?,
                _ => self.exact_value()?,
            };
            (operator, values)
        };
        LabelRequirement::new(key, operator, values.into_iter().collect()).map_err(aggregate)
    }

    fn operator(&mut self) -> Result<LabelOperator, String> {
        let (token, text) = self.tokens.next().unwrap_or((SelectorToken::End, Str::default()));
        Ok(match token {
            SelectorToken::In => LabelOperator::In,
            SelectorToken::Equals => LabelOperator::Equals,
            SelectorToken::DoubleEquals => LabelOperator::DoubleEquals,
            SelectorToken::Greater => LabelOperator::GreaterThan,
            SelectorToken::Less => LabelOperator::LessThan,
            SelectorToken::NotIn => LabelOperator::NotIn,
            SelectorToken::NotEquals => LabelOperator::NotEquals,
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    /// Parses `(a,b)`; nothing between two commas is the empty value.
    fn values(&mut self) -> Result<BTreeSet<Str>, String> {
        let (open, text) = self.next();
        if open != SelectorToken::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            (SelectorToken::Identifier | SelectorToken::Comma, _) => {}
            (SelectorToken::Close, _) => {
                self.next();
                values.insert(Str::default());
                return Ok(values);
            }
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        loop {
            match self.next() {
                (SelectorToken::Identifier, text) => {
                    values.insert(text);
                    match self.peek() {
                        (SelectorToken::Comma, _) => {}
                        (SelectorToken::Close, _) => break,
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (SelectorToken::Comma, _) => {
                    let next = self.peek().0;
                    if values.is_empty() || matches!(next, SelectorToken::Close | SelectorToken::Comma) {
                        values.insert(Str::default());
                    }
                    if next == SelectorToken::Close {
                        break;
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
        self.next();
        Ok(values)
    }

    fn exact_value(&mut self) -> Result<BTreeSet<Str>, String> {
        if matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma) {
            return Ok([Str::default()].into());
        }
        match self.next() {
            (SelectorToken::Identifier, text) => Ok([text].into()),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}
