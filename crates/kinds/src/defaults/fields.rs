//! Filling in fields that an object leaves out.

use value::{Map, Value};

/// Changes a map in place.
pub(crate) trait Fill {
    /// Sets a field that is absent or null (a pointer in Go).
    fn fill(&mut self, field: &str, value: impl Into<Value>);

    /// Sets a field that is absent, null, empty or zero (a plain value in Go).
    fn fill_zero(&mut self, field: &str, value: impl Into<Value>);

    /// The map at a field that is there.
    fn child(&mut self, field: &str) -> Option<&mut Map>;

    /// The map at a field, made if it is not there.
    fn child_made(&mut self, field: &str) -> &mut Map;

    /// The maps in the list at a field.
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

    fn child_made(&mut self, field: &str) -> &mut Map {
        self.entry_or_insert_with(field, || Map::new().into()).make_map()
    }

    fn children(&mut self, field: &str) -> impl Iterator<Item = &mut Map> {
        self.get_mut(field).and_then(Value::as_list_mut).into_iter().flatten().filter_map(Value::as_map_mut)
    }
}
