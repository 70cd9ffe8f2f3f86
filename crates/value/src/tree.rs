//! [`Value`]: the tree of a decoded object.

use crate::{Map, Str, steps};

/// A decoded object or any part of one.
///
/// `Clone` and `PartialEq` are implemented by hand so that [`steps`] counts them.
#[derive(Debug, Default)]
pub enum Value {
    /// The JSON value `null`.
    #[default]
    Null,
    /// A JSON boolean, `true` or `false`.
    Bool(bool),
    /// An integer within `i64`. Readers produce every integer in this form.
    Int(i64),
    /// An unsigned integer. Readers never produce it, like Go's decoder; CEL and typed callers do.
    UInt(u64),
    /// A number that is not an integer, or is out of `i64`'s range.
    Float(f64),
    /// A string, cheap to clone.
    String(Str),
    /// A JSON array of values.
    List(Vec<Value>),
    /// A JSON object, sorted by key.
    Map(Map),
}

/// The bytes of a text that are not in the `Str` itself.
fn text_memory(text: &Str) -> usize {
    if text.is_heap_allocated() { text.len().saturating_add(2 * size_of::<usize>()) } else { 0 }
}

impl Value {
    /// The value at `key`; `None` if this is not a map or lacks the key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_map()?.get(key)
    }

    /// Like [`Value::get`], for modification.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_map_mut()?.get_mut(key)
    }

    /// The value at a path of nested keys.
    pub fn at(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().try_fold(self, |value, key| value.get(key))
    }

    /// Like [`Value::at`], for modification.
    pub fn at_mut(&mut self, keys: &[&str]) -> Option<&mut Value> {
        keys.iter().try_fold(self, |value, key| value.get_mut(key))
    }

    /// The string at a path of nested keys.
    pub fn str_at(&self, keys: &[&str]) -> Option<&str> {
        self.at(keys)?.as_str()
    }

    /// The list at a path of nested keys; empty if it is absent or not a list.
    pub fn list_at(&self, keys: &[&str]) -> &[Value] {
        self.at(keys).and_then(Value::as_list).unwrap_or_default()
    }

    /// The integer at a path of nested keys.
    pub fn int_at(&self, keys: &[&str]) -> Option<i64> {
        self.at(keys)?.as_int()
    }

    /// The boolean at a path of nested keys.
    pub fn bool_at(&self, keys: &[&str]) -> Option<bool> {
        self.at(keys)?.as_bool()
    }

    /// Sets the value at a path of nested keys. Creates missing maps, and replaces values on the path that are not
    /// maps.
    pub fn set_at(&mut self, keys: &[&str], value: impl Into<Value>) {
        let Some((last, way)) = keys.split_last() else {
            *self = value.into();
            return;
        };
        self.make_map_at(way).insert(*last, value.into());
    }

    /// The map at a path of nested keys. Creates missing maps, and replaces values on the path and at its end that are not maps.
    pub fn make_map_at(&mut self, keys: &[&str]) -> &mut Map {
        let mut here = self;
        for key in keys {
            here = here.make_map().entry_or_insert_with(key, || Value::Map(Map::new()));
        }
        here.make_map()
    }

    /// Removes and returns the value at a path of nested keys.
    pub fn remove_at(&mut self, keys: &[&str]) -> Option<Value> {
        let (last, way) = keys.split_last()?;
        self.at_mut(way)?.as_map_mut()?.remove(last)
    }

    /// This value as a map; any other value is replaced by an empty map.
    pub fn make_map(&mut self) -> &mut Map {
        if !matches!(self, Value::Map(_)) {
            *self = Value::Map(Map::new());
        }
        match self {
            Value::Map(map) => map,
            #[expect(clippy::unreachable, reason = "the line above made it a map")]
            _ => unreachable!(),
        }
    }

    /// The boolean; `None` for other types.
    pub fn as_bool(&self) -> Option<bool> {
        steps::count(1);
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The integer, if it is one within `i64`.
    pub fn as_int(&self) -> Option<i64> {
        steps::count(1);
        match self {
            Value::Int(i) => Some(*i),
            Value::UInt(u) => i64::try_from(*u).ok(),
            _ => None,
        }
    }

    /// The string; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        steps::count(1);
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The list; `None` for other types.
    pub fn as_list(&self) -> Option<&[Value]> {
        steps::count(1);
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// Approximate length as JSON in bytes. Counting stops at `limit`.
    pub fn size_up_to(&self, limit: usize) -> usize {
        steps::count(1);
        match self {
            Value::String(text) => text.len().saturating_add(2),
            Value::List(items) => {
                let add = |size: usize, item: &Value| {
                    size.saturating_add(item.size_up_to(limit - size)).saturating_add(1)
                };
                items.iter().fold(2, |size, item| if size < limit { add(size, item) } else { size })
            }
            Value::Map(map) => {
                let add = |size: usize, name: &str, value: &Value| {
                    size.saturating_add(name.len() + 4).saturating_add(value.size_up_to(limit - size))
                };
                map.iter()
                    .fold(2, |size, (name, value)| if size < limit { add(size, name, value) } else { size })
            }
            _ => 4,
        }
    }

    /// Approximate memory of the tree in bytes, without what other trees share with it being subtracted.
    pub fn memory(&self) -> usize {
        steps::count(1);
        let heap = match self {
            Value::String(text) => text_memory(text),
            // What the list has reserved but does not use is included.
            Value::List(items) => {
                let unused = items.capacity().saturating_sub(items.len()).saturating_mul(size_of::<Value>());
                items.iter().fold(unused, |sum, item| sum.saturating_add(item.memory()))
            }
            Value::Map(map) => {
                let unused = map.unused_bytes();
                map.iter().fold(unused, |sum, (key, value)| {
                    sum.saturating_add(size_of::<Str>() + text_memory(key)).saturating_add(value.memory())
                })
            }
            _ => 0,
        };
        heap.saturating_add(size_of::<Value>())
    }

    /// The list for modification; `None` for other types.
    pub fn as_list_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The map; `None` for other types.
    pub fn as_map(&self) -> Option<&Map> {
        steps::count(1);
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The map for modification; `None` for other types.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        steps::count(1);
        matches!(self, Value::Null)
    }

    /// Name of the JSON type in Go's decoder (`null`, `bool`, `number`, `string`, `array`, `object`).
    pub fn json_type(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::List(_) => "array",
            Value::Map(_) => "object",
        }
    }

    /// Builds a map; a later entry replaces an earlier one with the same key.
    pub fn map<K: Into<Str>, V: Into<Value>>(entries: impl IntoIterator<Item = (K, V)>) -> Value {
        Value::Map(entries.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    pub fn list<V: Into<Value>>(items: impl IntoIterator<Item = V>) -> Value {
        Value::List(items.into_iter().map(Into::into).collect())
    }

    /// Nesting depth of maps and lists, this value included.
    pub fn depth(&self) -> usize {
        match self {
            Value::List(list) => 1 + list.iter().map(Value::depth).max().unwrap_or(0),
            Value::Map(map) => 1 + map.values().map(Value::depth).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        steps::count(1);
        match self {
            Value::Null => Value::Null,
            Value::Bool(b) => Value::Bool(*b),
            Value::Int(i) => Value::Int(*i),
            Value::UInt(u) => Value::UInt(*u),
            Value::Float(f) => Value::Float(*f),
            Value::String(s) => Value::String(s.clone()),
            Value::List(list) => Value::List(list.clone()),
            Value::Map(map) => Value::Map(map.clone()),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        steps::count(1);
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::UInt(a), Value::UInt(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::List(a), Value::List(b)) => a == b,
            (Value::Map(a), Value::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Value::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(i: i64) -> Self {
        Value::Int(i)
    }
}

impl From<i32> for Value {
    fn from(i: i32) -> Self {
        Value::Int(i64::from(i))
    }
}

impl From<u16> for Value {
    fn from(i: u16) -> Self {
        Value::Int(i64::from(i))
    }
}

impl From<f64> for Value {
    fn from(f: f64) -> Self {
        Value::Float(f)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Value::String(s.into())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Value::String(s.into())
    }
}

impl From<Str> for Value {
    fn from(s: Str) -> Self {
        Value::String(s)
    }
}

impl From<Vec<Value>> for Value {
    fn from(list: Vec<Value>) -> Self {
        Value::List(list)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Value::Map(map)
    }
}
