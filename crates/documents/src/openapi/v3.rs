//! Builds one OpenAPI 3.0 document.

use std::collections::BTreeSet;

use value::Value;

use super::components::{self, OpenApiVersion};
use super::operations::PathItem;
use super::paths::{bearer_token, path_item};

/// The document of these paths. All belong to `group_version`, which is `None` for documents about groups.
pub(super) fn document(
    items: &[PathItem],
    group_version: Option<(&str, &str)>,
    version: &str,
    custom: Vec<(String, Value)>,
) -> Value {
    let mut roots = BTreeSet::new();
    let paths: Vec<(String, Value)> = items
        .iter()
        .map(|item| (item.path.clone(), path_item(item, OpenApiVersion::V3, &mut roots)))
        .collect();
    let mut everywhere = vec![("", "v1")];
    everywhere.extend(group_version.filter(|group_version| *group_version != ("", "v1")));
    if !custom.is_empty() {
        roots.insert("meta.v1.ObjectMeta".to_owned());
        roots.insert("meta.v1.ListMeta".to_owned());
    }
    // Documents that return only text need no schemas.
    let schemas = (!roots.is_empty()).then(|| {
        let custom = custom.into_iter().map(|(name, schema)| (name.into(), schema));
        Value::Map(
            components::definitions(roots, &everywhere, OpenApiVersion::V3)
                .into_iter()
                .chain(custom)
                .collect(),
        )
    });
    let schemas = schemas.map(|schemas| ("schemas", schemas));
    Value::map([
        ("openapi", Value::from("3.0.0")),
        ("info", Value::map([("title", "Kubernetes"), ("version", version)])),
        ("paths", Value::map(paths)),
        ("components", Value::map(schemas.into_iter().chain([("securitySchemes", bearer_token())]))),
    ])
}
