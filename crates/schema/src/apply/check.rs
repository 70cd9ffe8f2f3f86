//! Validates an applied configuration against its schema with the error messages of structured-merge-diff.

use std::collections::BTreeSet;
use std::fmt;

use value::{Value, go};

use super::element::Element;
use super::shape::{OwnershipShape, Typed};
use crate::{Schema, StringEncoding, ValueType};

/// The validation errors, as pairs of path and message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors(Vec<(String, String)>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, path: &str, what: &str| match path {
            "" => f.write_str(what),
            _ => write!(f, "{path}: {what}"),
        };
        if let [(path, what)] = self.0.as_slice() {
            return one(f, path, what);
        }
        f.write_str("errors:")?;
        for (path, what) in &self.0 {
            f.write_str("\n  ")?;
            one(f, path, what)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Limits on the reported errors: their number, and the total bytes after which reporting stops. Paths are not shortened, and a long
/// name may occur in all of them.
const MAX_ERRORS: usize = 100;
const MAX_ERROR_BYTES: usize = 4 << 20;

/// Checks types, undeclared fields, and missing or duplicate keys of keyed lists and sets. `may_repeat` allows duplicate items, which
/// stored objects may have but configurations may not.
pub fn check(value: &Value, schema: &Schema, may_repeat: bool) -> Result<(), ConfigErrors> {
    let mut walk = ConfigCheck {
        path: Vec::new(),
        may_repeat,
        found: ConfigErrors::default(),
        bytes_left: MAX_ERROR_BYTES,
    };
    walk.value(value, Typed::root(schema));
    if walk.found.0.is_empty() { Ok(()) } else { Err(walk.found) }
}

struct ConfigCheck {
    path: Vec<Element>,
    may_repeat: bool,
    found: ConfigErrors,
    bytes_left: usize,
}

impl ConfigCheck {
    fn report(&mut self, what: String) {
        if self.found.0.len() < MAX_ERRORS && self.bytes_left > 0 {
            let path = path_text(&self.path);
            self.bytes_left = self.bytes_left.saturating_sub(path.len() + what.len());
            self.found.0.push((path, what));
        }
    }

    fn value(&mut self, value: &Value, typed: Typed<'_>) {
        if value.is_null() || typed.is_any() {
            return;
        }
        match (&typed.schema().value_type, value) {
            (ValueType::Object(_) | ValueType::Map(_), Value::Map(map)) => {
                for (key, value) in map.iter() {
                    self.path.push(Element::Field(key.clone()));
                    let Some((child, _)) = typed.field(key) else {
                        self.report("field not declared in schema".to_owned());
                        self.path.pop();
                        return;
                    };
                    self.value(value, child);
                    self.path.pop();
                }
            }
            (ValueType::Object(_) | ValueType::Map(_), other) => {
                self.report(format!("expected map, got {}", go_wrapper_text(other)));
            }
            (ValueType::List(list), Value::List(items)) => {
                self.list(items, typed, Typed::root(list.items.get()));
            }
            (ValueType::List(_), other) => {
                self.report(format!("expected list, got {}", go_wrapper_text(other)));
            }
            (_, scalar) => self.scalar(scalar, typed.schema()),
        }
    }

    fn list(&mut self, items: &[Value], typed: Typed<'_>, child: Typed<'_>) {
        let OwnershipShape::Items(associative) = typed.shape(None) else {
            for (at, item) in (0_i64..).zip(items) {
                self.path.push(Element::Index(at));
                self.value(item, child);
                self.path.pop();
            }
            return;
        };
        let mut seen: BTreeSet<Element> = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = match associative.element(item) {
                Ok(element) => element,
                Err(why) => return self.report(format!("element {at}: {why}")),
            };
            if !self.may_repeat && !seen.insert(element.clone()) {
                self.report(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(item, child);
            self.path.pop();
        }
    }

    fn scalar(&mut self, value: &Value, schema: &Schema) {
        let is_number = matches!(value, Value::Int(_) | Value::UInt(_) | Value::Float(_));
        match &schema.value_type {
            ValueType::Int32 | ValueType::Int64 | ValueType::Float if !is_number => {
                self.report(format!("expected numeric (int or float), got {}", go::type_name(value)));
            }
            ValueType::String(StringEncoding::Plain | StringEncoding::Bytes) if value.as_str().is_none() => {
                self.report(format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    go::syntax(&as_read(value), "string", MAX_ERROR_BYTES)
                ));
            }
            ValueType::Bool if value.as_bool().is_none() => {
                self.report(format!("expected boolean, got {}", go_wrapper_text(value)));
            }
            // Quantities, times and similar types accept any scalar.
            ValueType::String(_) if matches!(value, Value::List(_) | Value::Map(_)) => {
                self.report(format!("expected any scalar, got {}", go_wrapper_text(value)));
            }
            _ => {}
        }
    }
}

/// Formats a value as Go prints the library's wrapper around it.
fn go_wrapper_text(value: &Value) -> String {
    format!("&{{{}}}", go::text(&as_read(value)))
}

/// Configurations are decoded as JSON, where every number is a float.
fn as_read(value: &Value) -> Value {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "so does Go when it reads one")]
        Value::Int(i) => Value::Float(*i as f64),
        #[expect(clippy::cast_precision_loss, reason = "so does Go when it reads one")]
        Value::UInt(u) => Value::Float(*u as f64),
        Value::List(items) => Value::List(items.iter().map(as_read).collect()),
        Value::Map(map) => Value::Map(map.iter().map(|(key, value)| (key.clone(), as_read(value))).collect()),
        other => other.clone(),
    }
}

fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// The paths of atomic lists, maps and structs in a configuration, such as `.spec.selector`. Mutating admission policies reject them.
pub fn atomics(value: &Value, schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    find_atomics(value, Typed::root(schema), &mut Vec::new(), &mut found);
    found
}

fn find_atomics(value: &Value, typed: Typed<'_>, path: &mut Vec<Element>, found: &mut Vec<String>) {
    match value {
        Value::Map(map)
            if !matches!(typed.shape(Some(value)), OwnershipShape::Scalar | OwnershipShape::Items(_)) =>
        {
            if typed.is_atomic_map() {
                found.push(path_text(path));
            }
            for (key, value) in map.iter() {
                if let Some((child, true)) = typed.field(key) {
                    path.push(Element::Field(key.clone()));
                    find_atomics(value, child, path, found);
                    path.pop();
                }
            }
        }
        Value::List(items) => {
            if matches!(typed.shape(Some(value)), OwnershipShape::Atomic) {
                found.push(path_text(path));
            }
            let Some(child) = typed.items() else { return };
            for (at, item) in (0_i64..).zip(items) {
                path.push(Element::Index(at));
                find_atomics(item, child, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}
