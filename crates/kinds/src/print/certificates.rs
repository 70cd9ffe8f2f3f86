//! Columns of the `certificates.k8s.io` group.

use api::time::human_duration;
use value::Value;

use super::view::{View, cells, find_condition};
use super::{Column, TableDef};

pub(crate) const CERTIFICATE_SIGNING_REQUEST: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::AGE,
        Column::text("SignerName"),
        Column::text("Requestor"),
        Column::text("RequestedDuration"),
        Column::text("Condition"),
    ],
    |v| {
        let duration = v.object.int_at(&["spec", "expirationSeconds"]);
        cells![
            v.name(),
            v.age(),
            v.full_text_or(&["spec", "signerName"], "<none>"),
            v.text(&["spec", "username"]),
            duration.map_or_else(|| "<none>".to_owned(), human_duration),
            state(v),
        ]
    },
);

pub(crate) const CLUSTER_TRUST_BUNDLE: TableDef =
    TableDef::new(&[Column::NAME, Column::text("SignerName")], |v| {
        cells![v.name(), v.full_text_or(&["spec", "signerName"], "<none>")]
    });

pub(crate) const POD_CERTIFICATE_REQUEST: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("PodName"),
        Column::text("ServiceAccountName"),
        Column::text("NodeName"),
        Column::text("SignerName"),
        Column::text("State"),
        Column::text("UnverifiedUserAnnotations"),
    ],
    |v| {
        let spec = |field| v.text(&["spec", field]);
        cells![
            v.name(),
            spec("podName"),
            spec("serviceAccountName"),
            spec("nodeName"),
            spec("signerName"),
            pod_state(v),
            v.labels(&["spec", "unverifiedUserAnnotations"]),
        ]
    },
);

fn state(v: &View<'_>) -> String {
    let has = |kind: &str| find_condition(v.list(&["status", "conditions"]), kind).is_some();
    let mut state = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !v.text(&["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

fn pod_state(v: &View<'_>) -> Value {
    let kinds = v.list(&["status", "conditions"]).iter().rev().filter_map(|c| c.str_at(&["type"]));
    let mut known = kinds.filter(|kind| matches!(*kind, "Issued" | "Denied" | "Failed"));
    known.next().unwrap_or("Pending").into()
}
