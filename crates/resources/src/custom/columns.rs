//! Printer columns: the definition's columns as a table's.

use api::time::Timestamp;
use value::{Map, Str, Value, write};

use super::json_path::JsonPath;
use crate::validation::fields::Read;

/// A column of a definition.
#[derive(Clone, Debug)]
pub struct Column {
    name: Str,
    kind: Str,
    format: Str,
    description: Str,
    priority: i64,
    path: JsonPath,
}

/// The columns of a version. Where one of them cannot be read, those before it are shown.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    own: Vec<Column>,
}

impl Columns {
    /// From `additionalPrinterColumns`; without any, the age is shown.
    pub fn read(columns: &[Value]) -> Self {
        if columns.is_empty() {
            let age =
                Value::map([("name", "Age"), ("type", "date"), ("jsonPath", ".metadata.creationTimestamp")]);
            let age = column(&age).map(|age| Column { description: Str::default(), ..age });
            return Columns { own: age.into_iter().collect() };
        }
        Columns { own: columns.iter().map_while(column).collect() }
    }

    /// Those of `scale`.
    pub fn of_scale() -> Self {
        let columns = [
            ("Desired", "integer", ".spec.replicas"),
            ("Available", "integer", ".status.replicas"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ];
        let columns = columns
            .map(|(name, kind, path)| Value::map([("name", name), ("type", kind), ("jsonPath", path)]));
        let own = columns.iter().filter_map(column).map(|c| Column { description: Str::default(), ..c });
        Columns { own: own.collect() }
    }

    /// The `columnDefinitions`, the object's name first.
    pub fn headers(&self) -> Vec<Value> {
        let name = header("Name", "string", "name", "", 0);
        let own = self.own.iter().map(|column| {
            header(&column.name, &column.kind, &column.format, &column.description, column.priority)
        });
        std::iter::once(name).chain(own).collect()
    }

    /// The cells of an object; ages are those at `now`, in seconds since 1970.
    pub fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        let name = Value::from(api::meta::name(object));
        std::iter::once(name).chain(self.own.iter().map(|column| column.cell(object, now))).collect()
    }
}

fn header(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    let mut map = Map::with_capacity(5);
    map.insert("description", description);
    map.insert("format", format);
    map.insert("name", name);
    map.insert("priority", priority);
    map.insert("type", kind);
    Value::Map(map)
}

fn column(column: &Value) -> Option<Column> {
    let path = column.text("jsonPath");
    let described = column.text("description");
    let description = if described.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {path}").into()
    } else {
        described.into()
    };
    Some(Column {
        name: column.text("name").into(),
        kind: column.text("type").into(),
        format: column.text("format").into(),
        description,
        priority: column.number("priority"),
        path: JsonPath::parse(path)?,
    })
}

impl Column {
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "Go converts so, too")]
    fn cell(&self, object: &Value, now: i64) -> Value {
        let Some(value) = self.path.first(object) else { return Value::Null };
        match (self.kind.as_str(), value.as_ref()) {
            ("string", value) => text(value).into(),
            ("integer", Value::Int(number)) => Value::Int(*number),
            ("integer", Value::Float(number)) => Value::Int(*number as i64),
            ("number", Value::Int(number)) => Value::Float(*number as f64),
            ("number", Value::Float(number)) => Value::Float(*number),
            ("boolean", Value::Bool(set)) => Value::Bool(*set),
            ("date", Value::String(text)) if text.is_empty() || Timestamp::parse(text).is_ok() => {
                api::time::human_age(Some(text.as_str()).filter(|text| !text.is_empty()), now).into()
            }
            ("date", Value::String(_)) => "<invalid>".into(),
            _ => Value::Null,
        }
    }
}

/// A value as Go prints it; lists and maps as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.to_string(),
        other => write::to_string(other),
    }
}
