//! Parses kubectl's JSONPath syntax into steps.

use value::{Str, Value};

use super::{ComparisonOperator, FilterExpression, JsonPathStep, Slice};

/// Limit on nested parsing of filters, unions and quoted keys.
const DEEPEST: usize = 16;

/// Parses the steps of each `{…}` block. `text` has neither the opening `{` of the first block nor its closing `}`.
pub(super) fn blocks(text: &str) -> Option<Vec<Vec<JsonPathStep>>> {
    blocks_at(text, 0)
}

fn blocks_at(text: &str, depth: usize) -> Option<Vec<Vec<JsonPathStep>>> {
    if depth > DEEPEST {
        return None;
    }
    let whole = format!("{text}}}");
    let mut parser = JsonPathParser { rest: &whole, depth };
    let mut blocks = vec![parser.block()?];
    // Text between blocks is output for kubectl and has no meaning here.
    while let Some((_, rest)) = parser.rest.split_once('{') {
        parser.rest = rest;
        blocks.push(parser.block()?);
    }
    Some(blocks)
}

/// Parses text nested in another path, such as a filter operand.
fn inner(text: &str, depth: usize) -> Option<Vec<JsonPathStep>> {
    blocks_at(text, depth + 1)?.into_iter().next()
}

struct JsonPathParser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> JsonPathParser<'t> {
    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// Consumes and returns the text before byte `end`.
    fn upto(&mut self, end: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn until(&mut self, stop: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(stop).unwrap_or(self.rest.len());
        self.upto(end)
    }

    /// Consumes the steps of a block, including its closing `}`.
    fn block(&mut self) -> Option<Vec<JsonPathStep>> {
        let mut steps = Vec::new();
        loop {
            if self.take("}") {
                return Some(steps);
            }
            if self.take("[?(") {
                steps.push(self.filter()?);
            } else if self.take("..") {
                if steps.last() == Some(&JsonPathStep::Recursive) {
                    return None;
                }
                steps.push(JsonPathStep::Recursive);
                if self.rest.starts_with(is_alphanumeric) {
                    steps.push(self.field());
                }
            } else {
                let before = self.rest;
                match self.next()? {
                    '\r' | '\n' => return None,
                    ' ' | '@' | '$' => {}
                    '[' => steps.extend(self.bracket()?),
                    quote @ ('"' | '\'') => {
                        let text = self.quoted(quote)?;
                        steps.push(JsonPathStep::Constant(Value::String(text)));
                    }
                    '.' => steps.push(self.field()),
                    c if c == '+' || c == '-' || c.is_numeric() => {
                        self.rest = before;
                        steps.push(self.number()?);
                    }
                    c if is_alphanumeric(c) => {
                        self.rest = before;
                        steps.push(match self.until(is_terminator) {
                            "true" => JsonPathStep::Constant(Value::Bool(true)),
                            "false" => JsonPathStep::Constant(Value::Bool(false)),
                            _ => JsonPathStep::Keyword,
                        });
                    }
                    _ => return None,
                }
            }
        }
    }

    /// A field name; a backslash escapes the next character.
    fn field(&mut self) -> JsonPathStep {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            if c == '\\' {
                name.extend(chars.next().map(|(_, c)| c).filter(|c| *c != '\\'));
            } else if is_terminator(c) {
                end = at;
                break;
            } else {
                name.push(c);
            }
        }
        if self.upto(end) == "*" { JsonPathStep::Wildcard } else { JsonPathStep::Field(name.into()) }
    }

    fn number(&mut self) -> Option<JsonPathStep> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest.get(sign..).unwrap_or_default();
        let end = digits.find(|c: char| c != '.' && !c.is_numeric()).unwrap_or(digits.len());
        let text = self.upto(sign + end);
        let number = match text.parse::<i64>() {
            Ok(number) => Value::Int(number),
            Err(_) => Value::Float(text.parse().ok()?),
        };
        Some(JsonPathStep::Constant(number))
    }

    /// The contents of `[…]`, after the opening bracket.
    fn bracket(&mut self) -> Option<Vec<JsonPathStep>> {
        let end = self.rest.find([']', '\n'])?;
        let text = self.upto(end);
        if !self.take("]") {
            return None;
        }
        let text = if text == "*" { ":" } else { text };
        if text.contains(',') {
            let parts =
                text.split(',').map(|part| inner(&format!("[{}]", part.trim_matches(' ')), self.depth));
            return Some(vec![JsonPathStep::Union(parts.collect::<Option<_>>()?)]);
        }
        let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            return inner(&format!(".{key}"), self.depth);
        }
        slice(text).map(|slice| vec![JsonPathStep::Slice(slice)])
    }

    /// The contents of `[?(…)]`, up to a `)]` outside quotes.
    fn filter(&mut self) -> Option<JsonPathStep> {
        let (mut pair, mut closed) = (None, false);
        let mut before = ' ';
        let mut chars = self.rest.char_indices();
        let end = loop {
            let (at, c) = chars.next()?;
            match c {
                '\n' => return None,
                '"' | '\'' => match pair {
                    None => pair = Some(c),
                    Some(pair) => closed |= before != '\\' && c == pair,
                },
                ')' if pair.is_some() == closed => break at,
                _ => {}
            }
            before = c;
        };
        let text = self.upto(end);
        if !self.take(")]") {
            return None;
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let sides = text.find(is_operator).filter(|at| *at > 0).and_then(|at| {
            let (left, rest) = text.split_at_checked(at)?;
            let right = rest.trim_start_matches(is_operator);
            let operator = rest.get(..rest.len() - right.len())?;
            // If nothing is left for the right side, it gets the last operator character.
            match right {
                "" if operator.len() > 1 => {
                    let (operator, right) = operator.split_at_checked(operator.len() - 1)?;
                    Some((left, operator, right))
                }
                "" => None,
                right => Some((left, operator, right)),
            }
        });
        let filter = match sides {
            None => FilterExpression { left: inner(text, self.depth)?, test: None },
            Some((left, operator, right)) => {
                let operator = match operator {
                    "==" => ComparisonOperator::Equal,
                    "!=" => ComparisonOperator::NotEqual,
                    "<" => ComparisonOperator::Less,
                    "<=" => ComparisonOperator::LessEqual,
                    ">" => ComparisonOperator::Greater,
                    ">=" => ComparisonOperator::GreaterEqual,
                    _ => ComparisonOperator::Unknown,
                };
                FilterExpression {
                    left: inner(left, self.depth)?,
                    test: Some((operator, inner(right, self.depth)?)),
                }
            }
        };
        Some(JsonPathStep::Filter(filter))
    }

    /// A quoted string, after its opening quote.
    fn quoted(&mut self, quote: char) -> Option<Str> {
        let mut before = quote;
        let mut chars = self.rest.char_indices();
        let end = loop {
            let (at, c) = chars.next()?;
            if c == '\n' {
                return None;
            }
            if c == quote && before != '\\' {
                break at;
            }
            before = c;
        };
        let text = self.upto(end);
        self.next();
        value::go::unquote(text, quote).map(Str::from)
    }
}

/// Parses `from:to:by`, in which each number is optional, or a single index.
fn slice(text: &str) -> Option<Slice> {
    let number = |part: &str| match part {
        "" => Some(None),
        part => {
            let digits = part.strip_prefix('-').unwrap_or(part);
            let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            all.then(|| part.parse::<i64>().ok().map(Some)).flatten()
        }
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (from, to, by) = match parts.as_slice() {
        [from] => (number(from)?, None, None),
        [from, to] => (number(from)?, Some(number(to)?), None),
        [from, to, by] => (number(from)?, Some(number(to)?), number(by)?),
        _ => return None,
    };
    Some(match to {
        Some(to) => Slice { from, to, derived: false, by },
        None => Slice { from, to: Some(from.unwrap_or(0).saturating_add(1)), derived: true, by },
    })
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
