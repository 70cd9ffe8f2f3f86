//! [`View`]: an object as the cells of a row see it.

use api::selector::format_label_selector;
use api::time::{Timestamp, human_age};
use value::quantity::Quantity;
use value::{Map, Value};

/// An object and the time its row is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) object: &'a Value,
    pub(super) now: i64,
}

/// The cells of a row from anything that is a value.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$(::value::Value::from($cell)),*] };
}
pub(super) use cells;

impl<'a> View<'a> {
    /// `metadata.name`.
    pub(super) fn name(&self) -> &'a str {
        api::meta::name(self.object)
    }

    /// Time since creation.
    pub(super) fn age(&self) -> String {
        self.since(&["metadata", "creationTimestamp"])
    }

    /// The time of creation itself.
    pub(super) fn created_at(&self) -> &'a str {
        self.get_text(&["metadata", "creationTimestamp"]).unwrap_or("0001-01-01T00:00:00Z")
    }

    /// Whether deletion has begun.
    pub(super) fn is_deleting(&self) -> bool {
        api::meta::is_deleting(self.object)
    }

    /// The text of a field, if it has one.
    pub(super) fn get_text(&self, path: &[&str]) -> Option<&'a str> {
        self.object.str_at(path)
    }

    /// The text of a field; empty if it has none.
    pub(super) fn text(&self, path: &[&str]) -> &'a str {
        self.get_text(path).unwrap_or_default()
    }

    /// The text of a field, or `instead` if it has none.
    pub(super) fn text_or(&self, path: &[&str], instead: &'static str) -> &'a str {
        self.get_text(path).unwrap_or(instead)
    }

    /// The text of a field, or `instead` if it has none or an empty one.
    pub(super) fn full_text_or(&self, path: &[&str], instead: &'static str) -> &'a str {
        self.get_text(path).filter(|text| !text.is_empty()).unwrap_or(instead)
    }

    /// The integer of a field; 0 if it has none.
    pub(super) fn int(&self, path: &[&str]) -> i64 {
        self.object.int_at(path).unwrap_or_default()
    }

    /// The boolean of a field.
    pub(super) fn bool(&self, path: &[&str]) -> Option<bool> {
        self.object.bool_at(path)
    }

    /// The items of a field.
    pub(super) fn list(&self, path: &[&str]) -> &'a [Value] {
        self.object.list_at(path)
    }

    /// The texts in a list, joined.
    pub(super) fn joined(&self, path: &[&str]) -> String {
        texts(self.list(path)).collect::<Vec<_>>().join(",")
    }

    /// How many items a list or map has.
    pub(super) fn count(&self, path: &[&str]) -> i64 {
        let count = match self.object.at(path) {
            Some(Value::List(list)) => list.len(),
            Some(Value::Map(map)) => map.len(),
            _ => 0,
        };
        count_of(count)
    }

    /// Time since the moment in a field.
    pub(super) fn since(&self, path: &[&str]) -> String {
        human_age(self.get_text(path), self.now)
    }

    /// The moment in a field, in seconds since 1970.
    pub(super) fn moment(&self, path: &[&str]) -> Option<i64> {
        moment(self.get_text(path))
    }

    /// An annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.get_text(&["metadata", "annotations", name])
    }

    /// A field that is a set of labels, as `a=b,c=d`.
    pub(super) fn labels(&self, path: &[&str]) -> String {
        format_labels(self.object.at(path).and_then(Value::as_map))
    }

    /// A field that is a `LabelSelector`.
    pub(super) fn selector(&self, path: &[&str]) -> String {
        format_label_selector(self.object.at(path))
    }

    /// The names and the images of a field's containers.
    pub(super) fn containers(&self, path: &[&str]) -> (String, String) {
        let join = |field: &str| {
            let texts = self.list(path).iter().map(|c| c.str_at(&[field]).unwrap_or_default());
            texts.collect::<Vec<_>>().join(",")
        };
        (join("name"), join("image"))
    }

    /// A field that is a quantity, in canonical form; `instead` if it is absent.
    pub(super) fn quantity(&self, path: &[&str], instead: &str) -> String {
        self.object.at(path).map_or_else(|| instead.to_owned(), quantity)
    }

    /// The `status` of a condition of this type.
    pub(super) fn condition(&self, kind: &str) -> Option<&'a str> {
        find_condition(self.list(&["status", "conditions"]), kind)?.str_at(&["status"])
    }
}

/// The condition of a type.
pub(super) fn find_condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// A number of things as a cell.
pub(super) fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The texts in a list.
pub(super) fn texts(list: &[Value]) -> impl Iterator<Item = &str> {
    list.iter().filter_map(Value::as_str)
}

/// A quantity in canonical form, from a text or a number.
pub(super) fn quantity(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.to_string(),
        other => value::write::to_string(other),
    };
    Quantity::parse_json(&text).map_or(text, |quantity| quantity.to_string())
}

/// A time in seconds since 1970; `None` if it is absent, zero or unreadable.
pub(super) fn moment(text: Option<&str>) -> Option<i64> {
    let time = Timestamp::parse(text?).ok()?;
    (!time.is_zero()).then_some(time.seconds)
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn format_labels(labels: Option<&Map>) -> String {
    let pairs: Vec<String> = labels
        .into_iter()
        .flat_map(Map::iter)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// The first few of many: `a,b,c + 4 more...`; `<unset>` if there are none.
pub(super) fn with_more<'a>(items: impl Iterator<Item = &'a str>, most: usize) -> String {
    let items: Vec<&str> = items.collect();
    let first: Vec<&str> = items.iter().copied().take(most).collect();
    let first = first.join(",");
    if items.len() > most {
        return format!("{first} + {} more...", items.len() - most);
    }
    if first.is_empty() { "<unset>".to_owned() } else { first }
}
