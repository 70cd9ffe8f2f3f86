//! `node.k8s.io`.

use super::view::cells;
use super::{Column, TableDef};

pub(super) const TABLES: &[TableDef] =
    &[TableDef::new("RuntimeClass", &[Column::NAME, Column::text("Handler"), Column::AGE], |v| {
        cells![v.name(), v.text(&["handler"]), v.age()]
    })];
