//! Columns of the `scheduling.k8s.io` group.

use super::view::cells;
use super::{Column, TableDef};

pub(crate) const PRIORITY_CLASS: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::integer("Value"),
        Column::boolean("Global-Default"),
        Column::AGE,
        Column::text("PreemptionPolicy"),
    ],
    |v| {
        cells![
            v.name(),
            v.int(&["value"]),
            v.bool(&["globalDefault"]).unwrap_or(false),
            v.age(),
            v.text(&["preemptionPolicy"]),
        ]
    },
);
