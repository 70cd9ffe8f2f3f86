//! Parses label selectors, with Kubernetes' error messages.

use std::iter::Peekable;

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

/// The tokens of a text. `in` and `notin` are identifiers here; the parser distinguishes them by position.
struct SelectorTokens<'t> {
    rest: &'t str,
}

impl<'t> Iterator for SelectorTokens<'t> {
    type Item = (SelectorToken, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.trim_start_matches(is_blank);
        let first = rest.chars().next()?;
        // Each run of special characters is searched once, so that scanning stays linear.
        let end = if is_special(first) {
            // The longest token that begins here; every special character is a token by itself.
            [2, 1].into_iter().find(|n| rest.get(..*n).is_some_and(|t| token(t).is_some())).unwrap_or(1)
        } else {
            rest.find(|c| is_special(c) || is_blank(c)).unwrap_or(rest.len())
        };
        let (text, after) = rest.split_at(end);
        self.rest = after;
        let unknown = if is_special(first) { SelectorToken::Unknown } else { SelectorToken::Identifier };
        Some((token(text).unwrap_or(unknown), text))
    }
}

struct SelectorParser<'t> {
    tokens: Peekable<SelectorTokens<'t>>,
    /// Number of values so far.
    values: usize,
}

pub(super) fn requirements(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut parser = SelectorParser { tokens: SelectorTokens { rest: text }.peekable(), values: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (SelectorToken::Identifier | SelectorToken::Not, _) => {
                super::check_requirements(requirements.len() + 1)?;
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

impl<'t> SelectorParser<'t> {
    /// The next token where a key or value is expected: `in` and `notin` are identifiers there.
    fn peek(&mut self) -> (SelectorToken, &'t str) {
        let (token, text) = self.tokens.peek().copied().unwrap_or((SelectorToken::End, ""));
        (
            if matches!(token, SelectorToken::In | SelectorToken::NotIn) {
                SelectorToken::Identifier
            } else {
                token
            },
            text,
        )
    }

    fn next(&mut self) -> (SelectorToken, &'t str) {
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
        if let Some(error) = key_error(key, &Path::root()) {
            return Err(error.to_string());
        }
        let ends = matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma);
        let (operator, values) = if negated {
            (LabelOperator::DoesNotExist, Vec::new())
        } else if ends {
            (LabelOperator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                LabelOperator::In | LabelOperator::NotIn => self.values()?,
                _ => self.exact_value()?,
            };
            (operator, values)
        };
        LabelRequirement::new(key, operator, values.into_iter().map(Str::from).collect()).map_err(aggregate)
    }

    fn operator(&mut self) -> Result<LabelOperator, String> {
        let (token, text) = self.tokens.next().unwrap_or((SelectorToken::End, ""));
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
    fn values(&mut self) -> Result<Vec<&'t str>, String> {
        let (open, text) = self.next();
        if open != SelectorToken::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let mut values = Vec::new();
        match self.peek() {
            (SelectorToken::Identifier | SelectorToken::Comma, _) => {}
            (SelectorToken::Close, _) => {
                self.next();
                values.push("");
                return Ok(values);
            }
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        loop {
            super::check_values(self.values + values.len() + 1)?;
            match self.next() {
                (SelectorToken::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (SelectorToken::Comma, _) => {}
                        (SelectorToken::Close, _) => break,
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (SelectorToken::Comma, _) => {
                    let next = self.peek().0;
                    if values.is_empty() || matches!(next, SelectorToken::Close | SelectorToken::Comma) {
                        values.push("");
                    }
                    if next == SelectorToken::Close {
                        break;
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
        self.next();
        self.values += values.len();
        // The values are a set.
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    fn exact_value(&mut self) -> Result<Vec<&'t str>, String> {
        if matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma) {
            return Ok(vec![""]);
        }
        match self.next() {
            (SelectorToken::Identifier, text) => Ok(vec![text]),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}
