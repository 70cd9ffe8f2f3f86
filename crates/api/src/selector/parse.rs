//! The text of a label selector → its requirements, refused in Kubernetes' words.

use std::collections::BTreeSet;

use value::{Path, Str};

use super::labels::{Operator, Requirement, key_error};
use crate::field::aggregate;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
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

fn token(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "in" => Token::In,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "notin" => Token::NotIn,
        "(" => Token::Open,
        _ => return None,
    })
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Cuts the text into tokens; `in` and `notin` are told from identifiers later, by where they stand.
fn scan(text: &str) -> Vec<(Token, Str)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while let Some(first) = rest.chars().next() {
        // One pass in all: looking for the end of a run of special characters for each of them would be quadratic.
        let end = if is_special(first) {
            // The longest token that begins here; every special character is one by itself.
            [2, 1].into_iter().find(|n| rest.get(..*n).is_some_and(|t| token(t).is_some())).unwrap_or(1)
        } else {
            rest.find(|c| is_special(c) || is_blank(c)).unwrap_or(rest.len())
        };
        let (text, after) = rest.split_at(end);
        let unknown = if is_special(first) { Token::Unknown } else { Token::Identifier };
        tokens.push((token(text).unwrap_or(unknown), text.into()));
        rest = after.trim_start_matches(is_blank);
    }
    tokens
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<(Token, Str)>>,
}

/// All requirements of a selector's text.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: scan(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Identifier | Token::Not, _) => {
                let requirement =
                    parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                requirements.push(requirement);
                match parser.next() {
                    (Token::End, _) => return Ok(requirements),
                    (Token::Comma, _) => {
                        let (next, text) = parser.peek();
                        if !matches!(next, Token::Identifier | Token::Not) {
                            return Err(format!("found '{text}', expected: identifier after ','"));
                        }
                    }
                    (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
                }
            }
            (Token::End, _) => return Ok(requirements),
            (_, text) => {
                return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
            }
        }
    }
}

impl Parser {
    /// The next token where a key or value may stand: `in` and `notin` are identifiers there.
    fn peek(&mut self) -> (Token, Str) {
        let (token, text) = self.tokens.peek().cloned().unwrap_or((Token::End, Str::default()));
        (if matches!(token, Token::In | Token::NotIn) { Token::Identifier } else { token }, text)
    }

    fn next(&mut self) -> (Token, Str) {
        let next = self.peek();
        self.tokens.next();
        next
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(error) = key_error(&key, &Path::root()) {
            return Err(error.to_string());
        }
        let ends = matches!(self.peek().0, Token::End | Token::Comma);
        let (operator, values) = if negated {
            (Operator::DoesNotExist, BTreeSet::new())
        } else if ends {
            (Operator::Exists, BTreeSet::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                Operator::In | Operator::NotIn => self.values()?,
                _ => self.exact_value()?,
            };
            (operator, values)
        };
        Requirement::new(key, operator, values.into_iter().collect()).map_err(aggregate)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, text) = self.tokens.next().unwrap_or((Token::End, Str::default()));
        Ok(match token {
            Token::In => Operator::In,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            Token::NotIn => Operator::NotIn,
            Token::NotEquals => Operator::NotEquals,
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    /// `(a,b)`; an empty place between commas is the empty value.
    fn values(&mut self) -> Result<BTreeSet<Str>, String> {
        let (open, text) = self.next();
        if open != Token::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            (Token::Identifier | Token::Comma, _) => {}
            (Token::Close, _) => {
                self.next();
                values.insert(Str::default());
                return Ok(values);
            }
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        loop {
            match self.next() {
                (Token::Identifier, text) => {
                    values.insert(text);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => break,
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    let next = self.peek().0;
                    if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                        values.insert(Str::default());
                    }
                    if next == Token::Close {
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
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok([Str::default()].into());
        }
        match self.next() {
            (Token::Identifier, text) => Ok([text].into()),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}
