//! [`Element`]: one step of a field path in managed fields.

use std::cmp::Ordering;
use std::fmt;

use api::field::quote;
use value::{Str, Value};

/// One step from a value to a value inside it.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of a struct or a key of a map.
    Field(Str),
    /// The item of a keyed list with these values in its key fields, which are sorted by name.
    Key(Box<[(Str, Value)]>),
    /// The item of a set with this value.
    Value(Value),
    /// A position in a list. It is never created here, but stored field sets may contain it.
    Index(i64),
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.as_str().cmp(b.as_str()),
            (Element::Key(a), Element::Key(b)) => keys(a, b),
            (Element::Value(a), Element::Value(b)) => order(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

fn keys(a: &[(Str, Value)], b: &[(Str, Value)]) -> Ordering {
    for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
        let found = a_name.as_str().cmp(b_name.as_str()).then_with(|| order(a_value, b_value));
        if found != Ordering::Equal {
            return found;
        }
    }
    a.len().cmp(&b.len())
}

/// Total order of values by type: numbers, strings, booleans, lists, maps, null. Integers and floats compare as numbers.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::UInt(a), Value::UInt(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.as_str().cmp(b.as_str()),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::List(a), Value::List(b)) => {
            let differing = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|found| found.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Map(a), Value::Map(b)) => {
            let differing = a.iter().zip(b.iter()).find_map(|((a_key, a), (b_key, b))| {
                let found = a_key.as_str().cmp(b_key.as_str()).then_with(|| order(a, b));
                found.is_ne().then_some(found)
            });
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Float(a), Value::Float(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
        (whole, Value::Float(float)) if whole_number(whole).is_some() => against(whole, *float),
        (Value::Float(float), whole) if whole_number(whole).is_some() => against(whole, *float).reverse(),
        _ => match (whole_number(a), whole_number(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => kind(a).cmp(&kind(b)),
        },
    }
}

fn whole_number(value: &Value) -> Option<i128> {
    match value {
        Value::Int(i) => Some(i128::from(*i)),
        Value::UInt(u) => Some(i128::from(*u)),
        _ => None,
    }
}

/// Compares an integer with a float exactly. Rounding would make the order inconsistent, and sorting relies on it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a float beyond the range becomes its end, which no number reaches"
)]
fn against(whole: &Value, float: f64) -> Ordering {
    let Some(whole) = whole_number(whole) else { return Ordering::Equal };
    let order = whole.cmp(&(float.trunc() as i128));
    order.then_with(|| 0.0_f64.total_cmp(&(float.fract() + 0.0)))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of different types compare as floats, as in Kubernetes"
)]
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(i) => Some(*i as f64),
        Value::UInt(u) => Some(*u as f64),
        // Adding zero turns -0.0 into 0.0.
        Value::Float(f) => Some(*f + 0.0),
        _ => None,
    }
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::List(_) => 3,
        Value::Map(_) => 4,
        Value::Null => 5,
    }
}

/// Whether two values are equal; `1` equals `1.0`.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Null, Value::Null) => true,
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter().zip(b.iter()).all(|((a_key, a), (b_key, b))| a_key == b_key && same(a, b))
        }
        _ => number(a).is_some_and(|a| number(b) == Some(a)),
    }
}

/// Formats as in conflicts and errors: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", key_text(value))?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={}]", key_text(value)),
            Element::Index(at) => write!(f, "[{at}]"),
        }
    }
}

fn key_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quote(text),
        Value::List(items) => format!("[{}]", items.iter().map(key_text).collect::<Vec<_>>().join(",")),
        Value::Map(map) => {
            map.iter().flat_map(|(key, value)| [key.to_string(), "=".to_owned(), key_text(value)]).collect()
        }
        scalar => value::go::text(scalar),
    }
}

/// A path from the root of an object, printed as `.spec.containers[name="a"].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedFieldPath(pub Vec<Element>);

impl fmt::Display for ManagedFieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(f, "{element}"))
    }
}
