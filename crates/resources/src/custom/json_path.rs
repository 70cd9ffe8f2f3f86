//! The paths of printer columns and selectable fields: the part of kubectl's JSONPath that names places in an object.
//!
//! Whoever writes a definition writes its paths, and every list of its objects follows them: how deep filters nest in filters
//! and how many values a path looks at are bounded.

use std::cell::Cell;

use value::{Str, Value};

/// How many values a path may lead to; more are left out.
const MOST: usize = 10_000;

/// How many values a path looks at in one object; it leads to nothing beyond. Steps at any depth (`..a..a`) look at the same
/// values again and again.
const MOST_SEEN: usize = 1_000_000;

/// How deep filters nest in filters.
const DEEPEST: usize = 16;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Str),
    /// `..name`: at any depth.
    Anywhere(Str),
    Everything,
    /// `[from:to:by]`; the flags say what was written.
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        by: i64,
    },
    Index(i64),
    Filter(Box<Filter>),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: JsonPath,
    test: Option<(Operator, Operand)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Constant(Value),
    Path(JsonPath),
}

impl JsonPath {
    /// Parses a path as `.spec.list[0].name`; `None` for what is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text, depth: 0 };
        let steps = parser.steps()?;
        parser.rest.is_empty().then_some(JsonPath { steps })
    }

    /// The values it leads to, in order.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        self.find_within(root, &Sight(Cell::new(MOST_SEEN)))
    }

    fn find_within<'a>(&self, root: &'a Value, sight: &Sight) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.take(value, &mut next, sight);
                if next.len() > MOST {
                    break;
                }
            }
            found = next;
        }
        found
    }

    /// The first value it leads to.
    pub fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.find(root).into_iter().next()
    }

    fn first_within<'a>(&self, root: &'a Value, sight: &Sight) -> Option<&'a Value> {
        self.find_within(root, sight).into_iter().next()
    }
}

/// How many more values may be looked at.
struct Sight(Cell<usize>);

impl Sight {
    /// Whether one more may be.
    fn one(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>, sight: &Sight) {
        if !sight.one() {
            return;
        }
        match (self, value) {
            (Step::Field(name), Value::Map(map)) => out.extend(map.get(name)),
            (Step::Anywhere(name), value) => anywhere(name, value, out, sight),
            (Step::Everything, Value::Map(map)) => out.extend(map.values().take_while(|_| sight.one())),
            (Step::Everything, Value::List(items)) => out.extend(items.iter().take_while(|_| sight.one())),
            (Step::Index(index), Value::List(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *index < 0 { index.saturating_add(length) } else { *index };
                out.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
            }
            (Step::Slice { from, to, by }, Value::List(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at }.clamp(0, length);
                let mut at = place(from.unwrap_or(0));
                let end = place(to.unwrap_or(length));
                while at < end && sight.one() {
                    out.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
                    at = at.saturating_add(*by);
                }
            }
            (Step::Filter(filter), Value::List(items)) => {
                let seen = items.iter().take_while(|_| sight.one());
                out.extend(seen.filter(|item| filter.holds(item, sight)));
            }
            (Step::Filter(filter), Value::Map(map)) => {
                let seen = map.values().take_while(|_| sight.one());
                out.extend(seen.filter(|item| filter.holds(item, sight)));
            }
            _ => {}
        }
    }
}

// The tree is as deep as the reader allows, so is the recursion.
fn anywhere<'a>(name: &str, value: &'a Value, out: &mut Vec<&'a Value>, sight: &Sight) {
    if out.len() > MOST || !sight.one() {
        return;
    }
    match value {
        Value::Map(map) => {
            out.extend(map.get(name));
            map.values().for_each(|value| anywhere(name, value, out, sight));
        }
        Value::List(items) => items.iter().for_each(|value| anywhere(name, value, out, sight)),
        _ => {}
    }
}

impl Filter {
    fn holds(&self, item: &Value, sight: &Sight) -> bool {
        let left = self.left.find_within(item, sight);
        let Some((operator, right)) = &self.test else { return !left.is_empty() };
        let Some(left) = left.first() else { return false };
        let right = match right {
            Operand::Constant(value) => value,
            Operand::Path(path) => match path.first_within(item, sight) {
                Some(value) => value,
                None => return false,
            },
        };
        let order = order(left, right);
        match operator {
            Operator::Equal => order.map_or(*left == right, std::cmp::Ordering::is_eq),
            Operator::NotEqual => !order.map_or(*left == right, std::cmp::Ordering::is_eq),
            Operator::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Operator::LessEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Operator::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Operator::GreaterEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of different kinds compare as floats")]
fn order(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    let number = |value: &Value| match value {
        Value::Int(number) => Some(*number as f64),
        Value::UInt(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => number(a)?.partial_cmp(&number(b)?),
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// How many filters are open.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, stop: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(stop).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.take("..") {
                let name = self.name();
                if name.is_empty() {
                    return None;
                }
                steps.push(Step::Anywhere(name));
            } else if self.take(".") {
                if self.take("*") {
                    steps.push(Step::Everything);
                } else {
                    let name = self.name();
                    if !name.is_empty() {
                        steps.push(Step::Field(name));
                    }
                }
            } else if self.take("[") {
                steps.extend(self.bracket()?);
            } else {
                return Some(steps);
            }
        }
    }

    /// A name, in which `\` takes the next character as it is.
    fn name(&mut self) -> Str {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ']' | ' ' | '}' | '{' | ')' | '=' | '!' | '<' | '>' | ',' | '|' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = self.rest.get(end..).unwrap_or_default();
        name.into()
    }

    fn bracket(&mut self) -> Option<Vec<Step>> {
        if self.take("?(") {
            if self.depth == DEEPEST {
                return None;
            }
            self.depth += 1;
            let filter = self.filter();
            self.depth -= 1;
            return filter.map(|filter| vec![Step::Filter(Box::new(filter))]);
        }
        if self.take("*]") {
            return Some(vec![Step::Everything]);
        }
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let name = self.quoted(quote)?;
            return self.take("]").then(|| vec![Step::Field(name)]);
        }
        let inner = self.until(|c| c == ']');
        if !self.take("]") {
            return None;
        }
        let parts: Vec<&str> = inner.split(':').collect();
        let number = |part: &str| match part.trim() {
            "" => Some(None),
            text => text.parse::<i64>().ok().map(Some),
        };
        match parts.as_slice() {
            [index] => Some(vec![Step::Index(number(index)??)]),
            [from, to] => Some(vec![Step::Slice { from: number(from)?, to: number(to)?, by: 1 }]),
            [from, to, by] => {
                let by = number(by)?.unwrap_or(1);
                (by > 0).then_some(())?;
                Some(vec![Step::Slice { from: number(from)?, to: number(to)?, by }])
            }
            _ => None,
        }
    }

    fn quoted(&mut self, quote: char) -> Option<Str> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == '\\' {
                text.extend(chars.next().map(|(_, c)| c));
            } else if c == quote {
                self.rest = self.rest.get(at + c.len_utf8()..).unwrap_or_default();
                return Some(text.into());
            } else {
                text.push(c);
            }
        }
        None
    }

    fn filter(&mut self) -> Option<Filter> {
        self.blank();
        let left = self.path()?;
        self.blank();
        let test = if self.rest.starts_with(')') {
            None
        } else {
            let operators = [
                ("==", Operator::Equal),
                ("!=", Operator::NotEqual),
                ("<=", Operator::LessEqual),
                (">=", Operator::GreaterEqual),
                ("<", Operator::Less),
                (">", Operator::Greater),
            ];
            let (_, operator) = operators.into_iter().find(|(text, _)| self.take(text))?;
            self.blank();
            Some((operator, self.operand()?))
        };
        self.blank();
        self.take(")]").then_some(Filter { left, test })
    }

    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn path(&mut self) -> Option<JsonPath> {
        if !self.take("@") && !self.rest.starts_with('.') {
            return None;
        }
        Some(JsonPath { steps: self.steps()? })
    }

    fn operand(&mut self) -> Option<Operand> {
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            return self.quoted(quote).map(|text| Operand::Constant(Value::String(text)));
        }
        if self.rest.starts_with(['@', '.']) {
            return self.path().map(Operand::Path);
        }
        let word = self.until(|c| c == ')' || c.is_whitespace());
        let value = match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            word => match word.parse::<i64>() {
                Ok(number) => Value::Int(number),
                Err(_) => Value::Float(word.parse().ok()?),
            },
        };
        Some(Operand::Constant(value))
    }
}
