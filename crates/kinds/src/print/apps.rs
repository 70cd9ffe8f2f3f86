//! Columns of the `apps` group.

use api::selector::LabelSelector;
use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

const CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

pub(crate) const DEPLOYMENT: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Ready"),
        Column::text("Up-to-date"),
        Column::text("Available"),
        Column::AGE,
        Column::CONTAINERS,
        Column::IMAGES,
        Column::SELECTOR,
    ],
    |v| {
        let (names, images) = v.containers(CONTAINERS);
        let selector = LabelSelector::from_label_selector(v.object.at(&["spec", "selector"]));
        let selector = selector.map_or_else(|_| "<invalid>".to_owned(), |s| s.to_string());
        cells![
            v.name(),
            ready(v),
            v.int(&["status", "updatedReplicas"]),
            v.int(&["status", "availableReplicas"]),
            v.age(),
            names,
            images,
            selector,
        ]
    },
);

pub(crate) const REPLICA_SET: TableDef =
    TableDef::new(REPLICA_COLUMNS, |v| replica_cells(v, v.selector(&["spec", "selector"])));

/// Columns of ReplicaSet and ReplicationController.
pub(super) const REPLICA_COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired"),
    Column::integer("Current"),
    Column::integer("Ready"),
    Column::AGE,
    Column::CONTAINERS,
    Column::IMAGES,
    Column::SELECTOR,
];

/// Cells of [`REPLICA_COLUMNS`]. The selectors of the two kinds have different types.
pub(super) fn replica_cells(v: &View<'_>, selector: String) -> Vec<Value> {
    let (names, images) = v.containers(CONTAINERS);
    cells![
        v.name(),
        v.int(&["spec", "replicas"]),
        v.int(&["status", "replicas"]),
        v.int(&["status", "readyReplicas"]),
        v.age(),
        names,
        images,
        selector,
    ]
}

pub(crate) const STATEFUL_SET: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Ready"), Column::AGE, Column::CONTAINERS, Column::IMAGES],
    |v| {
        let (names, images) = v.containers(CONTAINERS);
        cells![v.name(), ready(v), v.age(), names, images]
    },
);

pub(crate) const DAEMON_SET: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::integer("Desired"),
        Column::integer("Current"),
        Column::integer("Ready"),
        Column::integer("Up-to-date"),
        Column::integer("Available"),
        Column::text("Node Selector"),
        Column::AGE,
        Column::CONTAINERS,
        Column::IMAGES,
        Column::SELECTOR,
    ],
    |v| {
        let (names, images) = v.containers(CONTAINERS);
        cells![
            v.name(),
            v.int(&["status", "desiredNumberScheduled"]),
            v.int(&["status", "currentNumberScheduled"]),
            v.int(&["status", "numberReady"]),
            v.int(&["status", "updatedNumberScheduled"]),
            v.int(&["status", "numberAvailable"]),
            v.labels(&["spec", "template", "spec", "nodeSelector"]),
            v.age(),
            names,
            images,
            v.selector(&["spec", "selector"]),
        ]
    },
);

pub(crate) const CONTROLLER_REVISION: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Controller"), Column::text("Revision"), Column::AGE], |v| {
        cells![v.name(), controller(v), v.int(&["revision"]), v.age()]
    });

fn ready(v: &View<'_>) -> Value {
    format!("{}/{}", v.int(&["status", "readyReplicas"]), v.int(&["spec", "replicas"])).into()
}

/// The controlling owner, for example `statefulset.apps/web`.
fn controller(v: &View<'_>) -> String {
    let Some(owner) = api::meta::owner_references(v.object).find(|owner| owner.controller) else {
        return "<none>".to_owned();
    };
    let (group, _) = api::GroupVersion::split(&owner.api_version);
    let kind = api::GroupKind::new(group, owner.kind).to_string().to_lowercase();
    format!("{kind}/{}", owner.name)
}
