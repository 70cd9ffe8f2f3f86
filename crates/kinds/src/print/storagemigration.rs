//! Columns of the `storagemigration.k8s.io` group.

use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

pub(crate) const STORAGE_VERSION_MIGRATION: TableDef =
    TableDef::new(&[Column::text("Name"), Column::text("Resource"), Column::text("Status")], |v| {
        let resource = |field| v.text(&["spec", "resource", field]);
        let resource = api::GroupResource::new(resource("group"), resource("resource"));
        cells![v.name(), resource.to_string(), status(v)]
    });

fn status<'a>(v: &View<'a>) -> &'a str {
    let holds = |condition: &&Value| {
        condition.str_at(&["status"]) == Some("True")
            && matches!(condition.str_at(&["type"]), Some("Running" | "Failed" | "Succeeded"))
    };
    let last = v.list(&["status", "conditions"]).iter().rev().find(holds);
    last.and_then(|condition| condition.str_at(&["type"])).unwrap_or("Unknown")
}
