//! Builds the Swagger 2.0 document of all resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use crd::CustomResourceDefinition;
use kinds::table::{GROUPS, Served};
use value::{Map, Str, Value};

use super::components::{self, OpenApiVersion};
use super::custom;
use super::operations;
use super::paths::{bearer_token, path_item};

/// Limit on the bytes that custom resources add. A thousand CRDs with one version and a schema of 20 kB each use half of it.
pub(super) const MAX_CUSTOM_BYTES: usize = 64 * 1024 * 1024;

/// Approximate size of the paths of one CRD version, in bytes.
const VERSION_BYTES: usize = 8 * 1024;

/// The parts of the document about custom resources.
#[derive(Default)]
struct CustomParts {
    paths: Vec<(Str, Value)>,
    schemas: Vec<(Str, Value)>,
    roots: BTreeSet<String>,
    left_out: Vec<Str>,
}

/// Builds the parts about custom resources, with at most `left` bytes. Small CRDs come first, so that a large one does not displace
/// others.
fn custom_parts(definitions: &[Arc<CustomResourceDefinition>], mut left: usize) -> CustomParts {
    let expected = |definition: &Arc<CustomResourceDefinition>| {
        let versions = definition.versions.iter().filter(|version| version.served).count();
        definition.size.saturating_add(versions.saturating_mul(VERSION_BYTES))
    };
    let mut ordered: Vec<&Arc<CustomResourceDefinition>> = definitions.iter().collect();
    ordered.sort_by_cached_key(|definition| expected(definition));
    let mut parts = CustomParts::default();
    for definition in ordered {
        if expected(definition) > left {
            parts.left_out.push(definition.name.clone());
            continue;
        }
        let alone = std::slice::from_ref(definition);
        let (mut paths, mut roots) = (Vec::new(), BTreeSet::new());
        for ((group, _), kinds) in custom::by_version(alone) {
            for item in custom::items(group, &kinds) {
                let rendered = path_item(&item, OpenApiVersion::V2, &mut roots);
                paths.push((Str::from(item.path), rendered));
            }
        }
        let schemas = custom::schemas(alone, None, OpenApiVersion::V2);
        let mut schemas: Vec<(Str, Value)> =
            schemas.into_iter().map(|(name, schema)| (name.into(), schema)).collect();
        // A short schema may embed many whole resources and expand to a large document.
        let size = paths.iter().chain(&schemas).map(|(_, part)| part.size_up_to(left.saturating_add(1)));
        match left.checked_sub(size.sum()) {
            None => parts.left_out.push(definition.name.clone()),
            Some(rest) => {
                left = rest;
                parts.paths.append(&mut paths);
                parts.schemas.append(&mut schemas);
                parts.roots.append(&mut roots);
            }
        }
    }
    parts
}

/// The document of all served resources, and the names of the CRDs omitted because custom resources would use more than `custom_bytes`
/// bytes.
pub(super) fn document(
    served: &Served,
    version: &str,
    issuer: bool,
    definitions: &[Arc<CustomResourceDefinition>],
    custom_bytes: usize,
) -> (Value, Vec<Str>) {
    let mut documents = vec!["api".to_owned(), "apis".to_owned(), "version".to_owned()];
    if issuer {
        documents.extend(operations::ISSUER.iter().map(|path| (*path).to_owned()));
    }
    for group in GROUPS {
        let versions = group.versions.iter().filter(|version| served.is_served(group.name, version));
        match group.name {
            name if !served.has_group(name) => {}
            "" => documents.extend(versions.map(|version| format!("api/{version}"))),
            name => {
                documents.push(format!("apis/{name}"));
                documents.extend(versions.map(|version| format!("apis/{name}/{version}")));
            }
        }
    }
    let mut roots = BTreeSet::new();
    // Collected first and inserted at once, because inserting one by one moves all later entries of the map each time.
    let mut paths: Vec<(Str, Value)> = Vec::new();
    for item in documents.iter().filter_map(|document| operations::of_document(document, served)).flatten() {
        let rendered = path_item(&item, OpenApiVersion::V2, &mut roots);
        paths.push((item.path.into(), rendered));
    }
    let mut custom = custom_parts(definitions, custom_bytes);
    paths.append(&mut custom.paths);
    roots.append(&mut custom.roots);
    let own = custom.schemas;
    if !own.is_empty() {
        roots.insert("meta.v1.ObjectMeta".to_owned());
        roots.insert("meta.v1.ListMeta".to_owned());
    }
    let everywhere: Vec<(&str, &str)> =
        GROUPS.iter().flat_map(|group| group.versions.iter().map(|version| (group.name, *version))).collect();
    let definitions: Map =
        components::definitions(roots, &everywhere, OpenApiVersion::V2).into_iter().chain(own).collect();
    let document = Value::map([
        ("swagger", Value::from("2.0")),
        ("info", Value::map([("title", "Kubernetes"), ("version", version)])),
        ("paths", Value::Map(paths.into_iter().collect())),
        ("definitions", Value::Map(definitions)),
        ("securityDefinitions", bearer_token()),
        ("security", Value::list([Value::map([("BearerToken", Value::List(Vec::new()))])])),
    ]);
    (document, custom.left_out)
}
