//! Evaluates the `additionalPrinterColumns` of a CRD into table columns and cells.
//!
//! The author of a CRD decides how expensive its columns are, but every client that requests a table makes the server pay for them. The
//! number of columns and the work and size of one table are therefore bounded.

use std::cell::Cell;

use api::time::Timestamp;
use api::validation::fields::Read;
use value::{Budget, BudgetEnded, Map, Str, Value, write};

use super::json_path::JsonPath;

#[derive(Clone, Debug)]
pub struct PrinterColumn {
    name: Str,
    kind: Str,
    format: Str,
    description: Str,
    priority: i64,
    path: JsonPath,
}

/// Limit on the columns shown per version; further columns are omitted.
pub const MAX_COLUMNS: usize = 200;

/// Limit on the values that all columns together visit for one table, about two seconds of work. 10,000 objects with 100 columns that
/// each search a list of ten conditions use half of it.
const TABLE_VISITS: usize = 50_000_000;

/// Limit on the bytes of text in all cells of one table.
const TABLE_BYTES: usize = 64 * 1024 * 1024;

/// Limit on the bytes of text in the cells of one row; larger than any object.
const ROW_BYTES: usize = 4 * 1024 * 1024;

/// The work and bytes that the cells of one table may still use. Cells computed after it is exhausted stay empty.
#[derive(Debug)]
pub struct TableAllowance {
    visits: Cell<usize>,
    bytes: Cell<usize>,
    row_bytes: Cell<usize>,
    is_used_up: Cell<bool>,
    request: Budget,
}

impl TableAllowance {
    /// Allowance for one table. Cells stay empty once the request's budget is canceled.
    pub fn new(request: &Budget) -> Self {
        TableAllowance {
            visits: Cell::new(TABLE_VISITS),
            bytes: Cell::new(TABLE_BYTES),
            row_bytes: Cell::new(ROW_BYTES),
            is_used_up: Cell::new(false),
            request: request.clone(),
        }
    }

    /// Uses custom limits instead of the constants.
    #[cfg(test)]
    pub(super) fn of(visits: usize, bytes: usize) -> Self {
        let allowance = TableAllowance::new(&Budget::UNLIMITED);
        allowance.visits.set(visits);
        allowance.bytes.set(bytes);
        allowance
    }

    /// Resets the byte limit that applies to each row.
    fn begin_row(&self) {
        self.row_bytes.set(ROW_BYTES);
    }

    fn has_room(&self) -> bool {
        let has_room = self.visits.get() > 0 && self.bytes.get() > 0 && self.row_bytes.get() > 0;
        self.is_used_up.set(self.is_used_up.get() || !has_room);
        has_room && self.request.check() != Err(BudgetEnded::Canceled)
    }

    /// Whether some cells were left empty because the allowance was exhausted.
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

/// The columns of a version. The first column that cannot be parsed and all columns after it are dropped.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    own: Vec<PrinterColumn>,
}

impl Columns {
    /// Reads `additionalPrinterColumns`; an empty list yields the `Age` column.
    pub fn read(columns: &[Value]) -> Self {
        if columns.is_empty() {
            let age =
                Value::map([("name", "Age"), ("type", "date"), ("jsonPath", ".metadata.creationTimestamp")]);
            let age = column(&age).map(|age| PrinterColumn { description: Str::default(), ..age });
            return Columns { own: age.into_iter().collect() };
        }
        Columns { own: columns.iter().take(MAX_COLUMNS).map_while(column).collect() }
    }

    pub fn of_scale() -> Self {
        let columns = [
            ("Desired", "integer", ".spec.replicas"),
            ("Available", "integer", ".status.replicas"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ];
        let columns = columns
            .map(|(name, kind, path)| Value::map([("name", name), ("type", kind), ("jsonPath", path)]));
        let own =
            columns.iter().filter_map(column).map(|c| PrinterColumn { description: Str::default(), ..c });
        Columns { own: own.collect() }
    }

    /// The table's `columnDefinitions`, starting with the object's name.
    pub fn headers(&self) -> Vec<Value> {
        let name = header("Name", "string", "name", "", 0);
        let own = self.own.iter().map(|column| {
            header(&column.name, &column.kind, &column.format, &column.description, column.priority)
        });
        std::iter::once(name).chain(own).collect()
    }

    /// The cells of one object's row. Ages are relative to `now`, in seconds since the Unix epoch.
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

fn column(column: &Value) -> Option<PrinterColumn> {
    let path = column.text("jsonPath");
    let described = column.text("description");
    let description = if described.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {path}").into()
    } else {
        described.into()
    };
    Some(PrinterColumn {
        name: column.text("name").into(),
        kind: column.text("type").into(),
        format: column.text("format").into(),
        description,
        priority: column.number("priority"),
        path: JsonPath::parse(path)?,
    })
}

impl PrinterColumn {
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

/// Formats a value as Go prints it; lists and maps as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.to_string(),
        other => write::to_string(other),
    }
}
