//! The paths of printer columns and selectable fields: kubectl's JSONPath, between `{` and `}`.
//!
//! Whoever writes a CRD writes its paths, and every list of its objects follows them: how many values a path looks at is
//! bounded. A path that goes wrong on an object (a list asked of what is none, numbers compared with texts) leads to nothing.

mod parse;

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;

use value::{Str, Value};

/// How many values a path may lead to; more are left out.
const MOST: usize = 10_000;

/// How many values a path looks at in one object; it leads to nothing beyond. Steps at any depth (`..a..a`) look at the same
/// values again and again.
const MOST_SEEN: usize = 1_000_000;

/// A parsed path. What stands behind a `}` has to be one, too, and can only spoil the first.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    first: Vec<Step>,
    others: Vec<Vec<Step>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Str),
    /// Everything in a value.
    Wildcard,
    /// The value and everything below it that has parts.
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Filter(Filter),
    /// What does not depend on the object.
    Constant(Value),
    /// A word, as `range`, that is of no use here.
    Word,
}

/// `[from:to:by]`; `[from]` has an end that follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    derived: bool,
    by: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    test: Option<(Operator, Vec<Step>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Unknown,
}

type Values<'a> = Vec<Cow<'a, Value>>;

/// Values, or those at which a path went wrong: a filter that asks whether there are any counts them.
type Walked<'a> = Result<Values<'a>, Values<'a>>;

impl JsonPath {
    /// Parses a path as `.spec.list[0].name`; `None` for what is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut blocks = parse::blocks(text)?.into_iter();
        Some(JsonPath { first: blocks.next()?, others: blocks.collect() })
    }

    /// The values it leads to, in order.
    pub fn find<'a>(&'a self, root: &'a Value) -> Vec<Cow<'a, Value>> {
        self.find_within(root, MOST_SEEN).0
    }

    /// The first value it leads to.
    pub fn first<'a>(&'a self, root: &'a Value) -> Option<Cow<'a, Value>> {
        self.find(root).into_iter().next()
    }

    /// The first value it leads to if it looks at no more than `visits` values, and at how many it looked.
    pub fn first_within<'a>(&'a self, root: &'a Value, visits: usize) -> (Option<Cow<'a, Value>>, usize) {
        let (found, seen) = self.find_within(root, visits);
        (found.into_iter().next(), seen)
    }

    fn find_within<'a>(&'a self, root: &'a Value, visits: usize) -> (Values<'a>, usize) {
        let visits = visits.min(MOST_SEEN);
        let sight = Sight(Cell::new(visits));
        let found = walk(&self.first, vec![Cow::Borrowed(root)], &sight);
        let spoiled = self.others.iter().any(|steps| walk(steps, vec![Cow::Borrowed(root)], &sight).is_err());
        let found = found.ok().filter(|_| !spoiled).unwrap_or_default();
        (found, visits.saturating_sub(sight.0.get()))
    }
}

/// How many more values may be looked at.
struct Sight(Cell<usize>);

impl Sight {
    /// Whether one more may be.
    fn one(&self) -> bool {
        self.some(1)
    }

    /// Whether so many more may be.
    fn some(&self, count: usize) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(count));
        left >= count
    }
}

fn walk<'a>(steps: &'a [Step], values: Values<'a>, sight: &Sight) -> Walked<'a> {
    // Every step looks at all values that the one before it led to, whatever it makes of them.
    steps.iter().try_fold(values, |values, step| {
        if sight.some(values.len().max(1)) { step.take(values, sight) } else { Err(values) }
    })
}

impl Step {
    fn take<'a>(&'a self, values: Values<'a>, sight: &Sight) -> Walked<'a> {
        let mut out = Values::new();
        match self {
            Step::Constant(constant @ Value::String(_)) => return Ok(vec![Cow::Borrowed(constant)]),
            Step::Constant(constant) => return Ok(values.iter().map(|_| Cow::Borrowed(constant)).collect()),
            Step::Word => return Err(values),
            Step::Union(alternatives) => {
                for steps in alternatives {
                    match walk(steps, values.clone(), sight) {
                        Ok(found) => out.extend(found),
                        Err(_) => return Err(values),
                    }
                }
            }
            Step::Slice(slice) => {
                for value in &values {
                    let items = match value.as_ref() {
                        Value::Null => continue,
                        Value::List(items) => items,
                        _ => return Err(values),
                    };
                    match slice.of(items.len()) {
                        Err(OutOfBounds) => return Err(values),
                        // Where none is asked for, the others are not looked at.
                        Ok(None) => break,
                        Ok(Some((from, to, by))) => {
                            let chosen = (from..to).step_by(by).take_while(|_| sight.one());
                            out.extend(chosen.filter_map(|at| item(value, at)));
                        }
                    }
                }
            }
            Step::Filter(filter) => {
                for value in &values {
                    let Value::List(items) = value.as_ref() else { return Err(values) };
                    for at in (0..items.len()).take_while(|_| sight.one()) {
                        let Some(item) = item(value, at) else { break };
                        match filter.holds(&item, sight) {
                            Ok(true) => out.push(item),
                            Ok(false) => {}
                            Err(Incomparable) => return Err(values),
                        }
                    }
                }
            }
            Step::Field(name) => {
                for value in values {
                    out.extend(field(value, name));
                }
            }
            Step::Wildcard => {
                for value in values {
                    out.extend(parts(&value, sight));
                }
            }
            Step::Recursive => {
                for value in values {
                    descend(value, &mut out, sight);
                }
            }
        }
        out.truncate(MOST);
        Ok(out)
    }
}

/// A part of a value lives as long as the value does: longer where that is borrowed than where it is not.
fn item<'a>(list: &Cow<'a, Value>, at: usize) -> Option<Cow<'a, Value>> {
    match list {
        Cow::Borrowed(list) => list.as_list()?.get(at).map(Cow::Borrowed),
        Cow::Owned(list) => list.as_list()?.get(at).cloned().map(Cow::Owned),
    }
}

fn field<'a>(map: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match map {
        Cow::Borrowed(map) => map.as_map()?.get(name).map(Cow::Borrowed),
        Cow::Owned(map) => map.as_map()?.get(name).cloned().map(Cow::Owned),
    }
}

/// What is in a value; of a text, its bytes.
fn parts<'a>(value: &Cow<'a, Value>, sight: &Sight) -> Values<'a> {
    let shown = |found: &mut dyn Iterator<Item = Value>| -> Values<'a> {
        found.take_while(|_| sight.one()).map(Cow::Owned).collect()
    };
    match value {
        Cow::Borrowed(Value::Map(map)) => {
            map.values().take_while(|_| sight.one()).map(Cow::Borrowed).collect()
        }
        Cow::Borrowed(Value::List(items)) => {
            items.iter().take_while(|_| sight.one()).map(Cow::Borrowed).collect()
        }
        Cow::Owned(Value::Map(map)) => shown(&mut map.values().cloned()),
        Cow::Owned(Value::List(items)) => shown(&mut items.iter().cloned()),
        Cow::Borrowed(Value::String(text)) => shown(&mut text.bytes().map(|b| Value::Int(i64::from(b)))),
        Cow::Owned(Value::String(text)) => shown(&mut text.bytes().map(|b| Value::Int(i64::from(b)))),
        _ => Values::new(),
    }
}

// The tree is as deep as the reader allows, so is the recursion.
fn descend<'a>(value: Cow<'a, Value>, out: &mut Values<'a>, sight: &Sight) {
    if out.len() > MOST || !sight.one() {
        return;
    }
    if matches!(value.as_ref(), Value::String(text) if !text.is_empty()) {
        return out.push(value);
    }
    let below = parts(&value, sight);
    if !below.is_empty() {
        out.push(value);
        for part in below {
            descend(part, out, sight);
        }
    }
}

struct OutOfBounds;

impl Slice {
    /// From where to where, in which steps, of a list of some length; `None` where no item is asked for.
    fn of(self, length: usize) -> Result<Option<(usize, usize, usize)>, OutOfBounds> {
        let length = i64::try_from(length).map_err(|_| OutOfBounds)?;
        let mut from = self.from.unwrap_or(0);
        if from < 0 {
            from = from.saturating_add(length);
        }
        let mut to = self.to.unwrap_or(length);
        if to < 0 || (to == 0 && self.derived) {
            to = to.saturating_add(length);
        }
        if from == to {
            return Ok(None);
        }
        if from < 0 || from >= length || to < 0 || to > length || from > to {
            return Err(OutOfBounds);
        }
        let place = |number: i64| usize::try_from(number).map_err(|_| OutOfBounds);
        let by = place(self.by.unwrap_or(1))?;
        if by == 0 { Err(OutOfBounds) } else { Ok(Some((place(from)?, place(to)?, by))) }
    }
}

struct Incomparable;

impl Filter {
    fn holds(&self, item: &Value, sight: &Sight) -> Result<bool, Incomparable> {
        let left = walk(&self.left, vec![Cow::Borrowed(item)], sight);
        let Some((operator, right)) = &self.test else {
            return Ok(!left.unwrap_or_else(|found| found).is_empty());
        };
        let left = left.map_err(|_| Incomparable)?;
        let Some(left) = one(&left)? else { return Ok(false) };
        let right = walk(right, vec![Cow::Borrowed(item)], sight).map_err(|_| Incomparable)?;
        let Some(right) = one(&right)? else { return Ok(false) };
        let order = order(left, right).ok_or(Incomparable)?;
        let is_flag = matches!(left, Value::Bool(_));
        match operator {
            Operator::Equal => Ok(order.is_eq()),
            Operator::NotEqual => Ok(order.is_ne()),
            // Whether one is smaller is asked of numbers and texts only.
            _ if is_flag => Err(Incomparable),
            Operator::Less => Ok(order.is_lt()),
            Operator::LessEqual => Ok(order.is_le()),
            Operator::Greater => Ok(order.is_gt()),
            Operator::GreaterEqual => Ok(order.is_ge()),
            Operator::Unknown => Err(Incomparable),
        }
    }
}

/// The only one of some values; two cannot be compared with anything.
fn one<'v>(values: &'v [Cow<'_, Value>]) -> Result<Option<&'v Value>, Incomparable> {
    match values {
        [] => Ok(None),
        [value] => Ok(Some(value.as_ref())),
        _ => Err(Incomparable),
    }
}

/// How two values of the same kind compare; an integer is of another kind than a number with a fraction.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => Some(a.partial_cmp(b).unwrap_or(Ordering::Greater)),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
