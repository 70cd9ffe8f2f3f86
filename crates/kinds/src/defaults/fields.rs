//! [`Fill`]: sets fields that an object omits.

use value::{Map, Value};

pub(crate) trait Fill {
    /// Sets the field if it is absent or null (a pointer in Go).
    fn fill(&mut self, field: &str, value: impl Into<Value>);

    /// Sets the field if it is absent, null, empty or zero (a plain value in Go).
    fn fill_zero(&mut self, field: &str, value: impl Into<Value>);

    fn child(&mut self, field: &str) -> Option<&mut Map>;

    /// Returns the map at the field, creating it if absent.
    fn child_or_insert(&mut self, field: &str) -> &mut Map;

    /// Iterates over the maps in the list at the field.
    fn children(&mut self, field: &str) -> impl Iterator<Item = &mut Map>;
}

impl Fill for Map {
    fn fill(&mut self, field: &str, value: impl Into<Value>) {
        if self.get(field).is_none_or(Value::is_null) {
            self.insert(field, value);
        }
    }

    fn fill_zero(&mut self, field: &str, value: impl Into<Value>) {
        let is_zero = match self.get(field) {
            None | Some(Value::Null | Value::Int(0)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::List(list)) => list.is_empty(),
            _ => false,
        };
        if is_zero {
            self.insert(field, value);
        }
    }

    fn child(&mut self, field: &str) -> Option<&mut Map> {
        self.get_mut(field).and_then(Value::as_map_mut)
    }

    fn child_or_insert(&mut self, field: &str) -> &mut Map {
        self.entry_or_insert_with(field, || Map::new().into()).make_map()
    }

    fn children(&mut self, field: &str) -> impl Iterator<Item = &mut Map> {
        self.get_mut(field).and_then(Value::as_list_mut).into_iter().flatten().filter_map(Value::as_map_mut)
    }
}
