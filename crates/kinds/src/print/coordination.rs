//! Columns of the `coordination.k8s.io` group.

use super::view::cells;
use super::{Column, TableDef};

pub(crate) const LEASE: TableDef = TableDef::new(&[Column::NAME, Column::text("Holder"), Column::AGE], |v| {
    cells![v.name(), v.text(&["spec", "holderIdentity"]), v.age()]
});
