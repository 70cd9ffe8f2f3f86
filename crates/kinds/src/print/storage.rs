//! Columns of the `storage.k8s.io` group. CSIStorageCapacity uses the default table.

use std::cmp::Reverse;

use value::Value;

use super::view::{View, cells, moment};
use super::{Column, TableDef, TableFinish, TableRow};

pub(crate) const STORAGE_CLASS: TableDef = TableDef {
    whole: TableFinish::DefaultClass,
    ..TableDef::new(
        &[
            Column::NAME,
            Column::text("Provisioner"),
            Column::text("ReclaimPolicy"),
            Column::text("VolumeBindingMode"),
            Column::text("AllowVolumeExpansion"),
            Column::AGE,
        ],
        |v| {
            cells![
                v.name(),
                v.text(&["provisioner"]),
                v.text_or(&["reclaimPolicy"], "Delete"),
                v.text_or(&["volumeBindingMode"], "Immediate"),
                v.bool(&["allowVolumeExpansion"]).unwrap_or(false),
                v.age(),
            ]
        },
    )
};

pub(crate) const VOLUME_ATTRIBUTES_CLASS: TableDef =
    TableDef::new(&[Column::NAME, Column::text("DriverName"), Column::AGE], |v| {
        cells![v.name(), v.text(&["driverName"]), v.age()]
    });

pub(crate) const VOLUME_ATTACHMENT: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column { format: "name", ..Column::text("Attacher") },
        Column::text("PV"),
        Column::text("Node"),
        Column::boolean("Attached"),
        Column::AGE,
    ],
    |v| {
        cells![
            v.name(),
            v.text(&["spec", "attacher"]),
            v.text(&["spec", "source", "persistentVolumeName"]),
            v.text(&["spec", "nodeName"]),
            v.bool(&["status", "attached"]).unwrap_or(false),
            v.age(),
        ]
    },
);

pub(crate) const CSI_NODE: TableDef =
    TableDef::new(&[Column::NAME, Column::integer("Drivers"), Column::AGE], |v| {
        cells![v.name(), v.count(&["spec", "drivers"]), v.age()]
    });

pub(crate) const CSI_DRIVER: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::boolean("AttachRequired"),
        Column::boolean("PodInfoOnMount"),
        Column::boolean("StorageCapacity"),
        Column::text("TokenRequests"),
        Column::boolean("RequiresRepublish"),
        Column::text("Modes"),
        Column::AGE,
    ],
    csi_driver,
);

fn csi_driver(v: &View<'_>) -> Vec<Value> {
    let flag = |field, default| v.bool(&["spec", field]).unwrap_or(default);
    let tokens = match v.object.at(&["spec", "tokenRequests"]) {
        Some(Value::List(requests)) => {
            let audiences = requests.iter().map(|r| r.str_at(&["audience"]).unwrap_or_default());
            audiences.collect::<Vec<_>>().join(",")
        }
        _ => "<unset>".to_owned(),
    };
    let modes = match v.joined(&["spec", "volumeLifecycleModes"]) {
        modes if modes.is_empty() => "<none>".to_owned(),
        modes => modes,
    };
    cells![
        v.name(),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        tokens,
        flag("requiresRepublish", false),
        modes,
        v.age(),
    ]
}

/// Marks the storage class used by claims without a class: the youngest of those annotated as default.
pub(super) fn mark_default(objects: &[&Value], rows: &mut [TableRow]) {
    const DEFAULT: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let default = objects
        .iter()
        .enumerate()
        .filter(|(_, object)| {
            DEFAULT.iter().any(|name| object.str_at(&["metadata", "annotations", name]) == Some("true"))
        })
        .min_by_key(|(_, object)| {
            let created = moment(object.str_at(&["metadata", "creationTimestamp"]));
            (Reverse(created), api::meta::name(object))
        });
    for row in rows.iter_mut().filter(|row| default.is_some_and(|(index, _)| row.index == index)) {
        if let Some(name) = row.cells.first_mut() {
            *name = format!("{} (default)", name.as_str().unwrap_or_default()).into();
        }
    }
}
