//! Columns of the `apiextensions.k8s.io` group.

use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

pub(crate) const CUSTOM_RESOURCE_DEFINITION: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Scope"),
        Column::text("Versions"),
        Column::CREATED_AT,
        Column::text("Group").wide(),
        Column::text("Kind").wide(),
        Column::text("ShortNames").wide(),
        Column::boolean("Established").wide(),
    ],
    custom_resource_definition,
);

fn custom_resource_definition(v: &View<'_>) -> Vec<Value> {
    let served = |version: &&Value| version.bool_at(&["served"]) == Some(true);
    let mut versions: Vec<String> = v
        .list(&["spec", "versions"])
        .iter()
        .filter(served)
        .map(|version| {
            let name = version.str_at(&["name"]).unwrap_or_default();
            let stored = version.bool_at(&["storage"]) == Some(true);
            if stored { format!("{name}(storage)") } else { name.to_owned() }
        })
        .collect();
    versions.sort_unstable();
    cells![
        v.name(),
        v.text(&["spec", "scope"]),
        versions.join(","),
        v.created_at(),
        v.text(&["spec", "group"]),
        v.text(&["spec", "names", "kind"]),
        v.joined(&["spec", "names", "shortNames"]),
        v.condition("Established") == Some("True"),
    ]
}
