//! Columns of the `coordination.k8s.io` group.

use super::view::cells;
use super::{Column, TableDef};

pub(crate) const LEASE: TableDef = TableDef::new(&[Column::NAME, Column::text("Holder"), Column::AGE], |v| {
    cells![v.name(), v.text(&["spec", "holderIdentity"]), v.age()]
});
pub(crate) const LEASE_CANDIDATE: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("LeaseName"),
        Column::text("BinaryVersion"),
        Column::text("EmulationVersion"),
        Column::AGE,
    ],
    |v| {
        let spec = |field| v.text(&["spec", field]);
        cells![v.name(), spec("leaseName"), spec("binaryVersion"), spec("emulationVersion"), v.age()]
    },
);
