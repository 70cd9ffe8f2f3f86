//! Printer columns: the CRD's columns as a table's.
//!
//! Whoever writes a CRD chooses what its columns cost, and whoever asks for a table has it paid: the number of columns, and the
//! work and the size of one table are bounded.

use std::cell::Cell;

use api::time::Timestamp;
use api::validation::fields::Read;
use value::{Budget, Ended, Map, Str, Value, write};

use super::json_path::JsonPath;

/// A column of a CRD.
#[derive(Clone, Debug)]
pub struct Column {
    name: Str,
    kind: Str,
    format: Str,
    description: Str,
    priority: i64,
    path: JsonPath,
}

/// How many columns of a version are shown; the others are left out.
pub const MAX_COLUMNS: usize = 200;

/// How many values all columns together look at for one table: some two seconds. 10,000 objects with 100 columns that search a list
/// of ten conditions need half of it.
const TABLE_VISITS: usize = 50_000_000;

/// How many bytes of text the cells of one table have.
const TABLE_BYTES: usize = 64 * 1024 * 1024;

/// How many bytes of text the cells of one row have: more than any object.
const ROW_BYTES: usize = 4 * 1024 * 1024;

/// What the cells of one table may still cost. Those that come after it is used up stay empty.
#[derive(Debug)]
pub struct TableAllowance {
    visits: Cell<usize>,
    bytes: Cell<usize>,
    row_bytes: Cell<usize>,
    is_used_up: Cell<bool>,
    request: Budget,
}

impl TableAllowance {
    /// For one table. Nothing is computed any more once the budget of its request is cancelled.
    pub fn new(request: &Budget) -> Self {
        TableAllowance {
            visits: Cell::new(TABLE_VISITS),
            bytes: Cell::new(TABLE_BYTES),
            row_bytes: Cell::new(ROW_BYTES),
            is_used_up: Cell::new(false),
            request: request.clone(),
        }
    }

    /// With other limits.
    #[cfg(test)]
    pub(super) fn of(visits: usize, bytes: usize) -> Self {
        let allowance = TableAllowance::new(&Budget::UNLIMITED);
        allowance.visits.set(visits);
        allowance.bytes.set(bytes);
        allowance
    }

    /// A row has a share of its own.
    fn begin_row(&self) {
        self.row_bytes.set(ROW_BYTES);
    }

    /// Whether one more cell may be computed.
    fn has_room(&self) -> bool {
        let has_room = self.visits.get() > 0 && self.bytes.get() > 0 && self.row_bytes.get() > 0;
        self.is_used_up.set(self.is_used_up.get() || !has_room);
        has_room && self.request.check() != Err(Ended::Cancelled)
    }

    /// Whether cells stay empty because the allowance was used up.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.get() || self.visits.get() == 0
    }

    fn spend_visits(&self, visits: usize) {
        self.visits.set(self.visits.get().saturating_sub(visits));
    }

    fn spend_bytes(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.row_bytes.set(self.row_bytes.get().saturating_sub(bytes));
    }
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
        Columns { own: columns.iter().take(MAX_COLUMNS).map_while(column).collect() }
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
    pub fn cells(&self, object: &Value, now: i64, allowance: &TableAllowance) -> Vec<Value> {
        let name = Value::from(api::meta::name(object));
        allowance.begin_row();
        let own = self.own.iter().map(|column| column.cell(object, now, allowance));
        std::iter::once(name).chain(own).collect()
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
    fn cell(&self, object: &Value, now: i64, allowance: &TableAllowance) -> Value {
        if !allowance.has_room() {
            return Value::Null;
        }
        let (found, visits) = self.path.first_within(object, allowance.visits.get());
        allowance.spend_visits(visits);
        let Some(value) = found else { return Value::Null };
        let cell = match (self.kind.as_str(), value.as_ref()) {
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
        };
        allowance.spend_bytes(cell.as_str().map_or(0, str::len));
        cell
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
