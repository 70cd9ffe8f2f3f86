//! Columns of the `rbac.authorization.k8s.io` group. Roles and cluster roles use the default table.

use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Role"),
    Column::AGE,
    Column::text("Users").wide(),
    Column::text("Groups").wide(),
    Column::text("ServiceAccounts").wide(),
];

pub(crate) const ROLE_BINDING: TableDef = TableDef::new(COLUMNS, binding);

pub(crate) const CLUSTER_ROLE_BINDING: TableDef = TableDef::new(COLUMNS, binding);

fn binding(v: &View<'_>) -> Vec<Value> {
    let role = |field| v.text(&["roleRef", field]);
    let of = |kind: &str| {
        let subjects = v.list(&["subjects"]).iter().filter(|s| s.str_at(&["kind"]) == Some(kind));
        let name = |subject: &Value| {
            let text = |field: &str| subject.str_at(&[field]).unwrap_or_default().to_owned();
            match kind {
                "ServiceAccount" => format!("{}/{}", text("namespace"), text("name")),
                _ => text("name"),
            }
        };
        subjects.map(name).collect::<Vec<_>>().join(", ")
    };
    cells![
        v.name(),
        format!("{}/{}", role("kind"), role("name")),
        v.age(),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}
