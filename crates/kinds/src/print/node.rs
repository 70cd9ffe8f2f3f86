//! Columns of the `node.k8s.io` group.

use super::view::cells;
use super::{Column, TableDef};

pub(crate) const RUNTIME_CLASS: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Handler"), Column::AGE], |v| {
        cells![v.name(), v.text(&["handler"]), v.age()]
    });
