//! Evaluates the paths of printer columns and selectable fields: kubectl's JSONPath, as written between `{` and `}`.
//!
//! The author of a CRD chooses its paths, and every list of its objects evaluates them, so the number of values a path may visit is
//! bounded. A path that fails on an object (indexing a value that is not a list, comparing numbers with strings) yields no values.

mod parse;

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;

use value::{Str, Value};

/// Limit on the values that a step yields; more are omitted.
const MAX_VALUES: usize = 10_000;

/// Limit on the values that a path visits in one object; a path that exceeds it yields no values. Repeated recursive steps (`..a..a`)
/// visit the same values many times.
const MAX_VISITS: usize = 1_000_000;

/// A parsed path. Only the first block yields values; blocks after a `}` must also parse, and if one fails on an object nothing is
/// found.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    first: Vec<JsonPathStep>,
    others: Vec<Vec<JsonPathStep>>,
}

#[derive(Clone, Debug, PartialEq)]
enum JsonPathStep {
    Field(Str),
    /// Every direct part of a value.
    Wildcard,
    /// The value and all its descendants that have parts.
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<JsonPathStep>>),
    Filter(FilterExpression),
    /// A literal that does not depend on the object.
    Constant(Value),
    /// A keyword such as `range`, which always fails here.
    Keyword,
}

/// `[from:to:by]`. For `[from]` alone, `to` is derived from `from`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    derived: bool,
    by: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
struct FilterExpression {
    left: Vec<JsonPathStep>,
    test: Option<(ComparisonOperator, Vec<JsonPathStep>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Unknown,
}

type Values<'a> = Vec<Cow<'a, Value>>;

/// The values found. `Err` holds the values at which a step failed, because existence filters count them.
type StepResult<'a> = Result<Values<'a>, Values<'a>>;

impl JsonPath {
    /// Parses a path such as `.spec.list[0].name`; `None` if the syntax is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut blocks = parse::blocks(text)?.into_iter();
        Some(JsonPath { first: blocks.next()?, others: blocks.collect() })
    }

    /// The values the path yields, in order.
    pub fn find<'a>(&'a self, root: &'a Value) -> Vec<Cow<'a, Value>> {
        self.find_within(root, MAX_VISITS).0
    }

    pub fn first<'a>(&'a self, root: &'a Value) -> Option<Cow<'a, Value>> {
        self.find(root).into_iter().next()
    }

    /// The first value found while visiting at most `visits` values, and the number of values visited.
    pub fn first_within<'a>(&'a self, root: &'a Value, visits: usize) -> (Option<Cow<'a, Value>>, usize) {
        let (found, seen) = self.find_within(root, visits);
        (found.into_iter().next(), seen)
    }

    fn find_within<'a>(&'a self, root: &'a Value, visits: usize) -> (Values<'a>, usize) {
        let visits = visits.min(MAX_VISITS);
        let visits_left = VisitLimit(Cell::new(visits));
        let found = walk(&self.first, vec![Cow::Borrowed(root)], &visits_left);
        let spoiled =
            self.others.iter().any(|steps| walk(steps, vec![Cow::Borrowed(root)], &visits_left).is_err());
        let found = found.ok().filter(|_| !spoiled).unwrap_or_default();
        (found, visits.saturating_sub(visits_left.0.get()))
    }
}

/// How many more values may be visited.
struct VisitLimit(Cell<usize>);

impl VisitLimit {
    /// Spends one visit; false if none is left.
    fn spend_one(&self) -> bool {
        self.spend(1)
    }

    /// Spends `count` visits; false if fewer are left.
    fn spend(&self, count: usize) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(count));
        left >= count
    }
}

fn walk<'a>(steps: &'a [JsonPathStep], values: Values<'a>, visits_left: &VisitLimit) -> StepResult<'a> {
    // Every step visits all values of the previous step, even those it discards.
    steps.iter().try_fold(values, |values, step| {
        if visits_left.spend(values.len().max(1)) { step.take(values, visits_left) } else { Err(values) }
    })
}

impl JsonPathStep {
    fn take<'a>(&'a self, values: Values<'a>, visits_left: &VisitLimit) -> StepResult<'a> {
        let mut out = Values::new();
        match self {
            JsonPathStep::Constant(constant @ Value::String(_)) => return Ok(vec![Cow::Borrowed(constant)]),
            JsonPathStep::Constant(constant) => {
                return Ok(values.iter().map(|_| Cow::Borrowed(constant)).collect());
            }
            JsonPathStep::Keyword => return Err(values),
            JsonPathStep::Union(alternatives) => {
                for steps in alternatives {
                    match walk(steps, values.clone(), visits_left) {
                        Ok(found) => out.extend(found),
                        Err(_) => return Err(values),
                    }
                }
            }
            JsonPathStep::Slice(slice) => {
                for value in &values {
                    let items = match value.as_ref() {
                        Value::Null => continue,
                        Value::List(items) => items,
                        _ => return Err(values),
                    };
                    match slice.of(items.len()) {
                        Err(OutOfBounds) => return Err(values),
                        // If a slice is empty, the remaining values are not visited.
                        Ok(None) => break,
                        Ok(Some((from, to, by))) => {
                            let chosen = (from..to).step_by(by).take_while(|_| visits_left.spend_one());
                            out.extend(chosen.filter_map(|at| item(value, at)));
                        }
                    }
                }
            }
            JsonPathStep::Filter(filter) => {
                for value in &values {
                    let Value::List(items) = value.as_ref() else { return Err(values) };
                    for at in (0..items.len()).take_while(|_| visits_left.spend_one()) {
                        let Some(item) = item(value, at) else { break };
                        match filter.holds(&item, visits_left) {
                            Ok(true) => out.push(item),
                            Ok(false) => {}
                            Err(Incomparable) => return Err(values),
                        }
                    }
                }
            }
            JsonPathStep::Field(name) => {
                for value in values {
                    out.extend(field(value, name));
                }
            }
            JsonPathStep::Wildcard => {
                for value in values {
                    out.extend(parts(&value, visits_left));
                }
            }
            JsonPathStep::Recursive => {
                for value in values {
                    descend(value, &mut out, visits_left);
                }
            }
        }
        out.truncate(MAX_VALUES);
        Ok(out)
    }
}

/// An item of a list: borrowed if the list is borrowed, otherwise cloned.
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

/// The direct parts of a value; for a string, its bytes.
fn parts<'a>(value: &Cow<'a, Value>, visits_left: &VisitLimit) -> Values<'a> {
    let shown = |found: &mut dyn Iterator<Item = Value>| -> Values<'a> {
        found.take_while(|_| visits_left.spend_one()).map(Cow::Owned).collect()
    };
    match value {
        Cow::Borrowed(Value::Map(map)) => {
            map.values().take_while(|_| visits_left.spend_one()).map(Cow::Borrowed).collect()
        }
        Cow::Borrowed(Value::List(items)) => {
            items.iter().take_while(|_| visits_left.spend_one()).map(Cow::Borrowed).collect()
        }
        Cow::Owned(Value::Map(map)) => shown(&mut map.values().cloned()),
        Cow::Owned(Value::List(items)) => shown(&mut items.iter().cloned()),
        Cow::Borrowed(Value::String(text)) => shown(&mut text.bytes().map(|b| Value::Int(i64::from(b)))),
        Cow::Owned(Value::String(text)) => shown(&mut text.bytes().map(|b| Value::Int(i64::from(b)))),
        _ => Values::new(),
    }
}

// The parser limits the depth of values, and thereby of this recursion.
fn descend<'a>(value: Cow<'a, Value>, out: &mut Values<'a>, visits_left: &VisitLimit) {
    if out.len() > MAX_VALUES || !visits_left.spend_one() {
        return;
    }
    if matches!(value.as_ref(), Value::String(text) if !text.is_empty()) {
        return out.push(value);
    }
    let below = parts(&value, visits_left);
    if !below.is_empty() {
        out.push(value);
        for part in below {
            descend(part, out, visits_left);
        }
    }
}

struct OutOfBounds;

impl Slice {
    /// The start, end and step for a list of `length` items; `None` if no item is selected.
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
        let index = |number: i64| usize::try_from(number).map_err(|_| OutOfBounds);
        let by = index(self.by.unwrap_or(1))?;
        if by == 0 { Err(OutOfBounds) } else { Ok(Some((index(from)?, index(to)?, by))) }
    }
}

struct Incomparable;

impl FilterExpression {
    fn holds(&self, item: &Value, visits_left: &VisitLimit) -> Result<bool, Incomparable> {
        let left = walk(&self.left, vec![Cow::Borrowed(item)], visits_left);
        let Some((operator, right)) = &self.test else {
            return Ok(!left.unwrap_or_else(|found| found).is_empty());
        };
        let left = left.map_err(|_| Incomparable)?;
        let Some(left) = one(&left)? else { return Ok(false) };
        let right = walk(right, vec![Cow::Borrowed(item)], visits_left).map_err(|_| Incomparable)?;
        let Some(right) = one(&right)? else { return Ok(false) };
        let order = order(left, right).ok_or(Incomparable)?;
        let is_flag = matches!(left, Value::Bool(_));
        match operator {
            ComparisonOperator::Equal => Ok(order.is_eq()),
            ComparisonOperator::NotEqual => Ok(order.is_ne()),
            // Booleans have no order.
            _ if is_flag => Err(Incomparable),
            ComparisonOperator::Less => Ok(order.is_lt()),
            ComparisonOperator::LessEqual => Ok(order.is_le()),
            ComparisonOperator::Greater => Ok(order.is_gt()),
            ComparisonOperator::GreaterEqual => Ok(order.is_ge()),
            ComparisonOperator::Unknown => Err(Incomparable),
        }
    }
}

/// The only one of `values`. Several values cannot be compared with anything.
fn one<'v>(values: &'v [Cow<'_, Value>]) -> Result<Option<&'v Value>, Incomparable> {
    match values {
        [] => Ok(None),
        [value] => Ok(Some(value.as_ref())),
        _ => Err(Incomparable),
    }
}

/// Compares two values of the same type. Integers and floats are different types.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => Some(a.partial_cmp(b).unwrap_or(Ordering::Greater)),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
