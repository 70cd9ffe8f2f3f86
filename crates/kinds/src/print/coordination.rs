//! `coordination.k8s.io`.

use super::view::cells;
use super::{Column, TableDef};

pub(super) const TABLES: &[TableDef] = &[
    TableDef::new("Lease", &[Column::NAME, Column::text("Holder"), Column::AGE], |v| {
        cells![v.name(), v.text(&["spec", "holderIdentity"]), v.age()]
    }),
    TableDef::new(
        "LeaseCandidate",
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
    ),
];
