//! [`View`]: accessors that the cell functions use to read an object.

use api::selector::format_label_selector;
use api::time::{Timestamp, human_age};
use value::quantity::Quantity;
use value::{Map, Value};

/// An object and the current time, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) object: &'a Value,
    pub(super) now: i64,
}

/// Builds the cells of a row from values convertible to `Value`.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$(::value::Value::from($cell)),*] };
}
pub(super) use cells;

impl<'a> View<'a> {
    pub(super) fn name(&self) -> &'a str {
        api::meta::name(self.object)
    }

    pub(super) fn age(&self) -> String {
        self.since(&["metadata", "creationTimestamp"])
    }

    /// The zero time of Go if unset.
    pub(super) fn created_at(&self) -> &'a str {
        self.get_text(&["metadata", "creationTimestamp"]).unwrap_or("0001-01-01T00:00:00Z")
    }

    pub(super) fn is_deleting(&self) -> bool {
        api::meta::is_deleting(self.object)
    }

    pub(super) fn get_text(&self, path: &[&str]) -> Option<&'a str> {
        self.object.str_at(path)
    }

    /// Text of a field; empty if absent.
    pub(super) fn text(&self, path: &[&str]) -> &'a str {
        self.get_text(path).unwrap_or_default()
    }

    /// Text of a field, or `instead` if absent.
    pub(super) fn text_or(&self, path: &[&str], instead: &'static str) -> &'a str {
        self.get_text(path).unwrap_or(instead)
    }

    /// Text of a field, or `instead` if absent or empty.
    pub(super) fn full_text_or(&self, path: &[&str], instead: &'static str) -> &'a str {
        self.get_text(path).filter(|text| !text.is_empty()).unwrap_or(instead)
    }

    /// Integer of a field; 0 if absent.
    pub(super) fn int(&self, path: &[&str]) -> i64 {
        self.object.int_at(path).unwrap_or_default()
    }

    pub(super) fn bool(&self, path: &[&str]) -> Option<bool> {
        self.object.bool_at(path)
    }

    /// Items of a list; empty if absent.
    pub(super) fn list(&self, path: &[&str]) -> &'a [Value] {
        self.object.list_at(path)
    }

    /// Texts of a list, joined by commas.
    pub(super) fn joined(&self, path: &[&str]) -> String {
        texts(self.list(path)).collect::<Vec<_>>().join(",")
    }

    /// Number of items in a list or map; 0 if absent.
    pub(super) fn count(&self, path: &[&str]) -> i64 {
        let count = match self.object.at(path) {
            Some(Value::List(list)) => list.len(),
            Some(Value::Map(map)) => map.len(),
            _ => 0,
        };
        count_of(count)
    }

    /// Age of the timestamp in a field.
    pub(super) fn since(&self, path: &[&str]) -> String {
        human_age(self.get_text(path), self.now)
    }

    /// Timestamp in a field, in seconds since 1970.
    pub(super) fn moment(&self, path: &[&str]) -> Option<i64> {
        moment(self.get_text(path))
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.get_text(&["metadata", "annotations", name])
    }

    /// Labels of a field as `a=b,c=d`, or `<none>`.
    pub(super) fn labels(&self, path: &[&str]) -> String {
        format_labels(self.object.at(path).and_then(Value::as_map))
    }

    /// Formats a `LabelSelector` as kubectl shows it.
    pub(super) fn selector(&self, path: &[&str]) -> String {
        format_label_selector(self.object.at(path))
    }

    /// Names and images of a list of containers, each joined by commas.
    pub(super) fn containers(&self, path: &[&str]) -> (String, String) {
        let join = |field: &str| {
            let texts = self.list(path).iter().map(|c| c.str_at(&[field]).unwrap_or_default());
            texts.collect::<Vec<_>>().join(",")
        };
        (join("name"), join("image"))
    }

    /// Quantity of a field in canonical form, or `instead` if absent.
    pub(super) fn quantity(&self, path: &[&str], instead: &str) -> String {
        self.object.at(path).map_or_else(|| instead.to_owned(), quantity)
    }

    /// The `status` of the first condition of this type.
    pub(super) fn condition(&self, kind: &str) -> Option<&'a str> {
        find_condition(self.list(&["status", "conditions"]), kind)?.str_at(&["status"])
    }
}

/// Returns the first condition of a type.
pub(super) fn find_condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Converts a count to a cell value.
pub(super) fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Iterates over the strings of a list.
pub(super) fn texts(list: &[Value]) -> impl Iterator<Item = &str> {
    list.iter().filter_map(Value::as_str)
}

/// Formats a quantity in canonical form; the value may be a string or a number.
pub(super) fn quantity(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.to_string(),
        other => value::write::to_string(other),
    };
    Quantity::parse_json(&text).map_or(text, |quantity| quantity.to_string())
}

/// Parses a time into seconds since 1970. `None` if it is absent, zero or invalid.
pub(super) fn moment(text: Option<&str>) -> Option<i64> {
    let time = Timestamp::parse(text?).ok()?;
    (!time.is_zero()).then_some(time.seconds)
}

/// Formats labels as `a=b,c=d`, or `<none>` if there are none.
pub(super) fn format_labels(labels: Option<&Map>) -> String {
    let pairs: Vec<String> = labels
        .into_iter()
        .flat_map(Map::iter)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// Joins the first `most` items: `a,b,c + 4 more...`; `<unset>` if there are none.
pub(super) fn with_more<'a>(items: impl Iterator<Item = &'a str>, most: usize) -> String {
    let items: Vec<&str> = items.collect();
    let first: Vec<&str> = items.iter().copied().take(most).collect();
    let first = first.join(",");
    if items.len() > most {
        return format!("{first} + {} more...", items.len() - most);
    }
    if first.is_empty() { "<unset>".to_owned() } else { first }
}
