//! Columns of the `internal.apiserver.k8s.io` group.

use super::view::{View, cells, with_more};
use super::{Column, TableDef};

/// Number of servers that are shown; of the others only the number.
const SHOWN_SERVERS: usize = 3;

pub(crate) const STORAGE_VERSION: TableDef = TableDef::new(
    &[Column::NAME, Column::text("CommonEncodingVersion"), Column::text("StorageVersions"), Column::AGE],
    |v| {
        let common = v.get_text(&["status", "commonEncodingVersion"]).unwrap_or("<unset>");
        cells![v.name(), common, servers(v), v.age()]
    },
);

fn servers(v: &View<'_>) -> String {
    let servers: Vec<String> = v
        .list(&["status", "storageVersions"])
        .iter()
        .map(|server| {
            let text = |field| server.str_at(&[field]).unwrap_or_default();
            format!("{}={}", text("apiServerID"), text("encodingVersion"))
        })
        .collect();
    with_more(servers.iter().map(String::as_str), SHOWN_SERVERS)
}
