//! The Table form of every kind: what `kubectl get` shows.
//!
//! A [`TableDef`] has the columns of a kind and a function from an object to the cells of its row; the row of the kind in
//! [`crate::table`] names it. Kinds without one show their name and when they were created.
//!
//! Columns carry no descriptions (the project publishes facts, not prose).

pub(crate) mod admissionregistration;
pub(crate) mod apiextensions;
pub(crate) mod apiregistration;
pub(crate) mod apps;
pub(crate) mod autoscaling;
pub(crate) mod batch;
pub(crate) mod certificates;
pub(crate) mod coordination;
pub(crate) mod core;
pub(crate) mod discovery;
pub(crate) mod events;
pub(crate) mod flowcontrol;
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

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The header.
    pub name: &'static str,
    /// The OpenAPI type of its cells: `string`, `integer`, `boolean`, `date`.
    pub kind: &'static str,
    /// The OpenAPI format; `name` marks the cells that name the object.
    pub format: &'static str,
    /// 0 for columns that are always shown, 1 for those that `-o wide` adds.
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

    /// The `TableColumnDefinition` on the wire.
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

/// The table of a kind.
#[derive(Clone, Copy, Debug)]
pub struct TableDef {
    columns: &'static [Column],
    cells: fn(&View<'_>) -> Vec<Value>,
    whole: Whole,
}

/// What a table needs to know of all its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// Nothing: each row stands for itself.
    Nothing,
    /// Which storage class is the default one: its name says so.
    DefaultClass,
    /// The order: flow schemas are listed by precedence.
    Precedence,
}

/// One row of a list: which of the objects it shows, and its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The position of the object in the list given.
    pub index: usize,
    /// One for each column.
    pub cells: Vec<Value>,
}

/// The table of a kind without one of its own: its name, and when it was created.
static DEFAULT: TableDef =
    TableDef::new(&[Column::NAME, Column::CREATED_AT], |v| cells![v.name(), v.created_at()]);

/// The table of a custom resource whose definition has no columns: its name and its age.
static CUSTOM: TableDef =
    TableDef::new(&[Column::NAME, Column::of("Age", "date")], |v| cells![v.name(), v.age()]);

/// The table of a kind that declares no columns.
pub(crate) fn default_table() -> &'static TableDef {
    &DEFAULT
}

/// The table of a custom resource whose definition has no columns.
pub fn custom() -> &'static TableDef {
    &CUSTOM
}

impl TableDef {
    const fn new(columns: &'static [Column], cells: fn(&View<'_>) -> Vec<Value>) -> Self {
        TableDef { columns, cells, whole: Whole::Nothing }
    }

    /// The columns, the ones of `-o wide` too: clients choose.
    pub fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// The cells of one object; ages are those at `now`, in seconds since 1970.
    pub fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        (self.cells)(&View { object, now })
    }

    /// The rows of a list. Most tables have one for each object, in order.
    pub fn rows(&self, objects: &[&Value], now: i64) -> Vec<Row> {
        let mut rows: Vec<Row> = objects
            .iter()
            .enumerate()
            .map(|(index, object)| Row { index, cells: self.row(object, now) })
            .collect();
        match self.whole {
            Whole::Nothing => {}
            Whole::DefaultClass => storage::mark_default(objects, &mut rows),
            Whole::Precedence => flowcontrol::sort(objects, &mut rows),
        }
        rows
    }
}

/// The `conditions` of an object's row: pods that have ended say so.
pub fn row_conditions(group: &str, kind: &str, object: &Value) -> Vec<Value> {
    if group.is_empty() && kind == "Pod" { pod::row_conditions(object) } else { Vec::new() }
}
