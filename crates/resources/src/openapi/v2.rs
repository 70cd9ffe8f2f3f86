//! URLs and operations → the Swagger 2.0 document of everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use value::{Map, Value};

use super::components::{self, Dialect};
use super::custom;
use super::operations::{self, Answer, Body, Operation, Parameter, PathItem};
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
    let mut paths = Map::new();
    for item in documents.iter().filter_map(|document| operations::of_document(document)).flatten() {
        let rendered = path_item(&item, &mut roots);
        paths.insert(item.path, rendered);
    }
    let mut versions: BTreeSet<(&str, &str)> = BTreeSet::new();
    versions.extend(custom::served(definitions, None).map(|(d, v)| (d.group.as_str(), v.name.as_str())));
    for (group, version) in versions {
        for item in custom::items(definitions, group, version) {
            let rendered = path_item(&item, &mut roots);
            paths.insert(item.path, rendered);
        }
    }
    let own = custom::schemas(definitions, None, Dialect::V2);
    if !own.is_empty() {
        roots.insert("meta.v1.ObjectMeta".to_owned());
        roots.insert("meta.v1.ListMeta".to_owned());
    }
    let everywhere: Vec<(&str, &str)> =
        GROUPS.iter().flat_map(|group| group.versions.iter().map(|version| (group.name, *version))).collect();
    let mut definitions = components::definitions(roots, &everywhere, Dialect::V2);
    for (name, schema) in own {
        definitions.set_at(&[&name], schema);
    }
    Value::map([
        ("swagger", Value::from("2.0")),
        ("info", Value::map([("title", "Kubernetes"), ("version", version)])),
        ("paths", Value::Map(paths)),
        ("definitions", definitions),
        (
            "securityDefinitions",
            Value::map([(
                "BearerToken",
                Value::map([
                    ("type", "apiKey"),
                    ("description", "Bearer Token authentication"),
                    ("name", "authorization"),
                    ("in", "header"),
                ]),
            )]),
        ),
        ("security", Value::list([Value::map([("BearerToken", Value::List(Vec::new()))])])),
    ])
}

fn path_item(item: &PathItem, roots: &mut BTreeSet<String>) -> Value {
    let mut map = Map::new();
    for operation in &item.operations {
        map.insert(operation.method, self::operation(operation, roots));
    }
    if !item.parameters.is_empty() {
        map.insert("parameters", Value::list(item.parameters.iter().map(parameter)));
    }
    Value::Map(map)
}

fn operation(operation: &Operation, roots: &mut BTreeSet<String>) -> Value {
    let mut refer = |name: &str| {
        roots.insert(name.to_owned());
        components::reference(name, Dialect::V2)
    };
    let mut map = Map::new();
    let consumes = match (&operation.body, operation.action) {
        (Some(Body::Patch(forms)), _) => forms,
        (_, None) => operation.produces,
        _ => &["*/*"],
    };
    map.insert("consumes", Value::list(consumes.iter().copied()));
    map.insert("produces", Value::list(operation.produces.iter().copied()));
    map.insert("schemes", Value::list(["https"]));
    map.insert("tags", Value::list([operation.tag.as_str()]));
    map.insert("operationId", operation.id.as_str());
    let body = match &operation.body {
        None => None,
        Some(Body::Object(name)) => Some((refer(name), true)),
        Some(Body::Patch(_)) => Some((refer("meta.v1.Patch"), true)),
        Some(Body::DeleteOptions) => Some((refer("meta.v1.DeleteOptions"), false)),
    };
    let body = body.map(|(schema, required)| {
        let mut body = Map::new();
        body.insert("name", "body");
        body.insert("in", "body");
        if required {
            body.insert("required", true);
        }
        body.insert("schema", schema);
        Value::Map(body)
    });
    let parameters: Vec<Value> = body.into_iter().chain(operation.parameters.iter().map(parameter)).collect();
    if !parameters.is_empty() {
        map.insert("parameters", parameters);
    }
    let mut responses = Map::new();
    for (code, answer) in &operation.responses {
        let schema = match answer {
            Answer::Object(name) => refer(name),
            Answer::Text => Value::map([("type", "string")]),
        };
        let description = match *code {
            "201" => "Created",
            "202" => "Accepted",
            _ => "OK",
        };
        responses.insert(*code, Value::map([("description", Value::from(description)), ("schema", schema)]));
    }
    responses.insert("401", Value::map([("description", "Unauthorized")]));
    map.insert("responses", responses);
    if let Some(action) = operation.action {
        map.insert("x-kubernetes-action", action);
    }
    if let Some((group, version, kind)) = &operation.kind {
        let kind = Value::map([("group", group.as_str()), ("version", version), ("kind", kind)]);
        map.insert("x-kubernetes-group-version-kind", kind);
    }
    Value::Map(map)
}

fn parameter(parameter: &Parameter) -> Value {
    let mut map = Map::new();
    map.insert("name", parameter.name);
    map.insert("in", if parameter.in_path { "path" } else { "query" });
    map.insert("type", parameter.kind);
    map.insert("uniqueItems", true);
    if parameter.in_path {
        map.insert("required", true);
    }
    Value::Map(map)
}
