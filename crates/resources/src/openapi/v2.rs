//! URLs and operations → the Swagger 2.0 document of everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use value::{Map, Str, Value};

use super::components::{self, Dialect};
use super::custom;
use super::operations;
use super::paths::{bearer_token, path_item};
use crate::custom::Definition;
use crate::table::{GROUPS, Served};

/// The document of everything that is served.
pub(super) fn document(
    served: &Served,
    version: &str,
    issuer: bool,
    definitions: &[Arc<Definition>],
) -> Value {
    let mut documents = vec!["api".to_owned(), "apis".to_owned(), "version".to_owned()];
    if issuer {
        documents.extend(operations::ISSUER.iter().map(|path| (*path).to_owned()));
    }
    for group in GROUPS {
        let versions = group.versions.iter().filter(|version| served.is_served(group.name, version));
        match group.name {
            "" => documents.extend(versions.map(|version| format!("api/{version}"))),
            name => {
                documents.push(format!("apis/{name}"));
                documents.extend(versions.map(|version| format!("apis/{name}/{version}")));
            }
        }
    }
    let mut roots = BTreeSet::new();
    // Put together at once: a map moves what is behind everything that is put into it.
    let mut paths: Vec<(Str, Value)> = Vec::new();
    for item in documents.iter().filter_map(|document| operations::of_document(document)).flatten() {
        let rendered = path_item(&item, Dialect::V2, &mut roots);
        paths.push((item.path.into(), rendered));
    }
    for ((group, _), kinds) in custom::by_version(definitions) {
        for item in custom::items(group, &kinds) {
            let rendered = path_item(&item, Dialect::V2, &mut roots);
            paths.push((item.path.into(), rendered));
        }
    }
    let own = custom::schemas(definitions, None, Dialect::V2);
    if !own.is_empty() {
        roots.insert("meta.v1.ObjectMeta".to_owned());
        roots.insert("meta.v1.ListMeta".to_owned());
    }
    let everywhere: Vec<(&str, &str)> =
        GROUPS.iter().flat_map(|group| group.versions.iter().map(|version| (group.name, *version))).collect();
    let own = own.into_iter().map(|(name, schema)| (name.into(), schema));
    let definitions: Map =
        components::definitions(roots, &everywhere, Dialect::V2).into_iter().chain(own).collect();
    Value::map([
        ("swagger", Value::from("2.0")),
        ("info", Value::map([("title", "Kubernetes"), ("version", version)])),
        ("paths", Value::Map(paths.into_iter().collect())),
        ("definitions", Value::Map(definitions)),
        ("securityDefinitions", bearer_token()),
        ("security", Value::list([Value::map([("BearerToken", Value::List(Vec::new()))])])),
    ])
}
