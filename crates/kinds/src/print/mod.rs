//! Table form of every kind: the columns and rows of `kubectl get`.
//!
//! A [`TableDef`] holds the columns of a kind and a function from an object to the cells of its row. The kind's row in
//! [`crate::table`] names it. Kinds without one show their name and creation time.
//!
//! Column descriptions are empty, because the project does not copy Kubernetes' prose.

pub(crate) mod admissionregistration;
pub(crate) mod apiextensions;
pub(crate) mod apiregistration;
pub(crate) mod apiserverinternal;
pub(crate) mod apps;
pub(crate) mod autoscaling;
pub(crate) mod batch;
pub(crate) mod certificates;
pub(crate) mod coordination;
pub(crate) mod core;
pub(crate) mod discovery;
pub(crate) mod events;
pub(crate) mod flowcontrol;
pub(crate) mod lifecycle;
pub(crate) mod networking;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod policy;
pub(crate) mod rbac;
pub(crate) mod resource;
pub(crate) mod scheduling;
pub(crate) mod service;
pub(crate) mod storage;
pub(crate) mod storagemigration;
#[cfg(test)]
pub(crate) mod tests;
mod view;

use value::{Map, Value};

use self::view::{View, cells};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// OpenAPI type of the cells: `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// OpenAPI format; `name` marks the column with the object's name.
    pub format: &'static str,
    /// 0 if the column is always shown, 1 if only `-o wide` shows it.
    pub priority: i64,
}

impl Column {
    const NAME: Column = Column { format: "name", ..Column::text("Name") };
    const AGE: Column = Column::text("Age");
    const CREATED_AT: Column = Column::of("Created At", "date");
    const CONTAINERS: Column = Column::text("Containers").wide();
    const IMAGES: Column = Column::text("Images").wide();
    const SELECTOR: Column = Column::text("Selector").wide();

    const fn of(name: &'static str, kind: &'static str) -> Column {
        Column { name, kind, format: "", priority: 0 }
    }

    const fn text(name: &'static str) -> Column {
        Column::of(name, "string")
    }

    const fn integer(name: &'static str) -> Column {
        Column::of(name, "integer")
    }

    const fn boolean(name: &'static str) -> Column {
        Column::of(name, "boolean")
    }

    const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// Encodes the column as a `TableColumnDefinition`.
    pub fn to_value(self) -> Value {
        let mut out = Map::with_capacity(5);
        out.insert("description", "");
        out.insert("format", self.format);
        out.insert("name", self.name);
        out.insert("priority", self.priority);
        out.insert("type", self.kind);
        Value::Map(out)
    }
}

/// Columns and rows of a kind's table.
#[derive(Clone, Copy, Debug)]
pub struct TableDef {
    columns: &'static [Column],
    cells: fn(&View<'_>) -> Vec<Value>,
    whole: TableFinish,
}

/// Processing that needs all rows of a list at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableFinish {
    /// Each row depends only on its object.
    Nothing,
    /// Marks the default storage class in its name column.
    DefaultClass,
    /// Sorts flow schemas by precedence.
    Precedence,
}

/// A row of a list: the index of its object, and its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow {
    /// Position of the object in the list.
    pub index: usize,
    /// One cell per column.
    pub cells: Vec<Value>,
}

/// Name and creation time, for built-in kinds without a table of their own.
static DEFAULT: TableDef =
    TableDef::new(&[Column::NAME, Column::CREATED_AT], |v| cells![v.name(), v.created_at()]);

/// Name and age, for custom resources whose CRD declares no columns.
static CUSTOM: TableDef =
    TableDef::new(&[Column::NAME, Column::of("Age", "date")], |v| cells![v.name(), v.age()]);

pub(crate) fn default_table() -> &'static TableDef {
    &DEFAULT
}

/// Table of a custom resource whose CRD declares no columns.
pub fn custom() -> &'static TableDef {
    &CUSTOM
}

impl TableDef {
    const fn new(columns: &'static [Column], cells: fn(&View<'_>) -> Vec<Value>) -> Self {
        TableDef { columns, cells, whole: TableFinish::Nothing }
    }

    /// All columns, including those for `-o wide`; clients choose.
    pub fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// True if each row depends only on its object.
    pub fn has_independent_rows(&self) -> bool {
        self.whole == TableFinish::Nothing
    }

    /// Returns the cells of one object. `now` is in seconds since 1970 and determines ages.
    pub fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        (self.cells)(&View { object, now })
    }

    /// Returns the rows of a list, in the order of the objects unless the kind sorts them.
    pub fn rows(&self, objects: &[&Value], now: i64) -> Vec<TableRow> {
        let mut rows: Vec<TableRow> = objects
            .iter()
            .enumerate()
            .map(|(index, object)| TableRow { index, cells: self.row(object, now) })
            .collect();
        match self.whole {
            TableFinish::Nothing => {}
            TableFinish::DefaultClass => storage::mark_default(objects, &mut rows),
            TableFinish::Precedence => flowcontrol::sort(objects, &mut rows),
        }
        rows
    }
}

/// Returns the `conditions` of a row: finished pods have one.
pub fn row_conditions(group: &str, kind: &str, object: &Value) -> Vec<Value> {
    if group.is_empty() && kind == "Pod" { pod::row_conditions(object) } else { Vec::new() }
}
