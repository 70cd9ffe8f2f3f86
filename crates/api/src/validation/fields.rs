//! Reading fields and reporting what is wrong with them, as the rules of every kind do it.
//!
//! [`At`] is a place in an object: a chain of borrowed steps that costs nothing until an error is reported there.
//! [`Read`] reads a field as Go reads one of a decoded struct: what is absent (or null) is the zero value.
//! [`Report`] adds an error about a place to the list of errors.

use std::collections::HashMap;
use std::fmt;

use value::{Map, Value};

use crate::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::quantity::Quantity;

/// A place in an object, printed as Kubernetes prints field paths (`spec.containers[0].name`).
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> At<'a> {
    /// The object itself.
    pub const ROOT: At<'static> = At { parent: None, step: Step::Root };

    /// Whether this is the object itself.
    pub const fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.step, Step::Root)
    }

    /// A place named by a path from the root: `At::new("spec.template")`.
    pub const fn new(path: &'a str) -> Self {
        At { parent: None, step: Step::Field(path) }
    }

    /// A field of this place; `path` may go several fields down (`"httpGet.port"`).
    #[must_use]
    pub const fn field(&'a self, path: &'a str) -> Self {
        At { parent: Some(self), step: Step::Field(path) }
    }

    /// An item of the list at this place.
    #[must_use]
    pub const fn index(&'a self, index: usize) -> Self {
        At { parent: Some(self), step: Step::Index(index) }
    }

    /// The value at a key of the map at this place.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Self {
        At { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut inside = false;
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
            inside = !matches!(parent.step, Step::Root);
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if inside => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Reads fields of an object; null counts as absent, and so does a value of another type than asked for.
///
/// It is there for a value, a map, and a part that may be absent: `spec.part("securityContext").flag("privileged")`.
pub trait Read<'a>: Copy {
    /// The value of a field that is there.
    fn part(self, field: &str) -> Option<&'a Value>;

    /// A text; empty where absent.
    fn text(self, field: &str) -> &'a str {
        self.text_if_set(field).unwrap_or_default()
    }

    /// A text that may be absent (a pointer in Go).
    fn text_if_set(self, field: &str) -> Option<&'a str> {
        self.part(field).and_then(Value::as_str)
    }

    /// A number; zero where absent.
    fn number(self, field: &str) -> i64 {
        self.number_if_set(field).unwrap_or_default()
    }

    /// A number that may be absent (a pointer in Go).
    fn number_if_set(self, field: &str) -> Option<i64> {
        self.part(field).and_then(Value::as_int)
    }

    /// A boolean; false where absent.
    fn flag(self, field: &str) -> bool {
        self.flag_if_set(field).unwrap_or_default()
    }

    /// A boolean that may be absent (a pointer in Go).
    fn flag_if_set(self, field: &str) -> Option<bool> {
        self.part(field).and_then(Value::as_bool)
    }

    /// A list; empty where absent.
    fn items(self, field: &str) -> &'a [Value] {
        self.part(field).and_then(Value::as_list).unwrap_or_default()
    }

    /// A list of texts; empty where absent.
    fn texts(self, field: &str) -> impl Iterator<Item = &'a str> + Clone {
        self.items(field).iter().filter_map(Value::as_str)
    }

    /// A map; `None` where absent.
    fn map_of(self, field: &str) -> Option<&'a Map> {
        self.part(field).and_then(Value::as_map)
    }

    /// The entries of a map in key order; none where absent.
    fn entries(self, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.map_of(field).into_iter().flat_map(|map| map.iter().map(|(k, v)| (k.as_str(), v)))
    }

    /// The entries of a map of texts in key order; none where absent.
    fn text_entries(self, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries(field).filter_map(|(k, v)| Some((k, v.as_str()?)))
    }
}

impl<'a> Read<'a> for &'a Value {
    fn part(self, field: &str) -> Option<&'a Value> {
        self.get(field).filter(|value| !value.is_null())
    }
}

impl<'a> Read<'a> for &'a Map {
    fn part(self, field: &str) -> Option<&'a Value> {
        self.get(field).filter(|value| !value.is_null())
    }
}

impl<'a> Read<'a> for Option<&'a Value> {
    fn part(self, field: &str) -> Option<&'a Value> {
        self.and_then(|value| value.part(field))
    }
}

/// Adds errors about places to a list.
pub trait Report {
    /// Adds an error of any kind.
    fn report(&mut self, kind: FieldErrorKind, at: &At<'_>, bad_value: Option<Value>, detail: String);

    /// A value is malformed.
    fn invalid(&mut self, at: &At<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Invalid, at, Some(value.into()), detail.into());
    }

    /// A value is malformed; the value is given as JSON text, where the order of its fields matters.
    fn invalid_json(&mut self, at: &At<'_>, json: &str, detail: &str) {
        self.report(FieldErrorKind::Invalid, at, None, format!("{json}: {detail}"));
    }

    /// A value is malformed in each of these ways.
    fn invalid_each(&mut self, at: &At<'_>, value: &str, details: impl IntoIterator<Item = String>) {
        for detail in details {
            self.report(FieldErrorKind::Invalid, at, Some(value.into()), detail);
        }
    }

    /// A value is missing.
    fn required(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Required, at, None, detail.into());
    }

    /// A value is not permitted here.
    fn forbidden(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Forbidden, at, None, detail.into());
    }

    /// A value that must be unique is not.
    fn duplicate(&mut self, at: &At<'_>, value: impl Into<Value>) {
        self.report(FieldErrorKind::Duplicate, at, Some(value.into()), String::new());
    }

    /// A named thing does not exist.
    fn not_found(&mut self, at: &At<'_>, value: impl Into<Value>) {
        self.report(FieldErrorKind::NotFound, at, Some(value.into()), String::new());
    }

    /// A value is not one of `supported`, which are listed in the order given.
    fn not_supported(&mut self, at: &At<'_>, value: impl Into<Value>, supported: &[&str]) {
        let error = FieldError::not_supported(&value::Path::root(), value, supported);
        self.report(error.kind, at, error.bad_value, error.detail);
    }

    /// A text is longer than `max` bytes.
    fn too_long(&mut self, at: &At<'_>, max: usize) {
        let error = FieldError::too_long(&value::Path::root(), max);
        self.report(error.kind, at, error.bad_value, error.detail);
    }

    /// A list has `actual` items, more than `max`.
    fn too_many(&mut self, at: &At<'_>, actual: usize, max: usize) {
        let error = FieldError::too_many(&value::Path::root(), actual, max);
        self.report(error.kind, at, error.bad_value, error.detail);
    }

    /// Not the caller's fault.
    fn internal(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Internal, at, None, detail.into());
    }

    /// A number must not be below zero.
    fn not_negative(&mut self, at: &At<'_>, number: i64) {
        if number < 0 {
            self.invalid(at, number, NOT_NEGATIVE);
        }
    }

    /// A field of `new` must be what it is in `old`.
    fn immutable(&mut self, at: &At<'_>, new: Option<&Value>, old: Option<&Value>) {
        if !same(new, old) {
            self.invalid(at, new.cloned().unwrap_or_default(), IMMUTABLE);
        }
    }
}

/// The most errors that are kept about one object. An answer tells far fewer, and the memory must not grow with what is wrong.
pub const MAX_ERRORS: usize = 10_000;

impl Report for FieldErrors {
    fn report(&mut self, kind: FieldErrorKind, at: &At<'_>, bad_value: Option<Value>, detail: String) {
        if self.len() < MAX_ERRORS {
            self.push(FieldError { kind, field: at.to_string(), bad_value, detail });
        }
    }
}

/// What is said of a field that cannot be changed.
pub const IMMUTABLE: &str = "field is immutable";

/// What is said of a number below zero.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Whether two fields are equal as Kubernetes' semantic equality sees it: absent, null and an empty list are one, and
/// quantities compare as numbers. An empty map is not absent: Go tells a pointer to an empty struct from none.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    equal(a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null), false)
}

/// The fields whose texts (or whose map's texts) are quantities.
const QUANTITIES: &[&str] =
    &["limits", "requests", "overhead", "allocatedResources", "capacity", "sizeLimit", "divisor"];

/// The maps of a schema: Go's maps, of which an empty one is as good as none.
const MAPS: &[&str] = &["properties", "patternProperties", "definitions", "dependencies"];

fn equal(a: &Value, b: &Value, quantities: bool) -> bool {
    match (a, b) {
        (Value::Map(x), Value::Map(y)) => {
            let inside = |key: &str| quantities || QUANTITIES.contains(&key);
            let is_none = |key: &str, value: &Value| {
                is_absent(value) || MAPS.contains(&key) && value.as_map().is_some_and(value::Map::is_empty)
            };
            x.iter().all(|(key, value)| {
                let other = y.get(key).unwrap_or(&Value::Null);
                equal(value, other, inside(key)) || is_none(key, value) && is_none(key, other)
            }) && y.iter().all(|(key, value)| x.contains_key(key) || is_none(key, value))
        }
        (Value::List(x), Value::List(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y, quantities))
        }
        (Value::String(x), Value::String(y)) if quantities => {
            x == y || Quantity::parse(x).is_ok_and(|x| Quantity::parse(y).is_ok_and(|y| x == y))
        }
        _ => a == b || (is_absent(a) && is_absent(b)),
    }
}

pub fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(list) => list.is_empty(),
        _ => false,
    }
}

/// Adds what the declared rules of a kind found, which replaces what its other rules say about the same fields.
/// Kubernetes checks some rules twice, in two ways, and lets clients see the declared way at the end.
pub fn supersede(mut errors: FieldErrors, declared: FieldErrors) -> FieldErrors {
    let mut by_field: HashMap<&str, Vec<&FieldError>> = HashMap::new();
    for other in &declared {
        by_field.entry(&other.field).or_default().push(other);
    }
    errors.retain(|error| {
        !by_field.get(error.field.as_str()).into_iter().flatten().any(|other| {
            error.kind == other.kind
                && (error.kind != FieldErrorKind::Invalid || error.detail.ends_with(&other.detail))
        })
    });
    errors.extend(declared);
    errors
}
