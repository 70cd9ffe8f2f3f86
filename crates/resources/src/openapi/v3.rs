//! URLs and operations → an OpenAPI 3.0 document.

use std::collections::BTreeSet;

use value::{Map, Value};

use super::components::{self, Dialect};
use super::operations::{Answer, Body, Operation, Parameter, PathItem};

/// The document of these URLs, all of one group and version (none for the documents about groups).
pub(super) fn document(
    items: &[PathItem],
    group_version: Option<(&str, &str)>,
    version: &str,
    custom: Vec<(String, Value)>,
) -> Value {
    let mut roots = BTreeSet::new();
    let paths: Vec<(String, Value)> =
        items.iter().map(|item| (item.path.clone(), path_item(item, &mut roots))).collect();
    let mut everywhere = vec![("", "v1")];
    everywhere.extend(group_version.filter(|group_version| *group_version != ("", "v1")));
    if !custom.is_empty() {
        roots.insert("meta.v1.ObjectMeta".to_owned());
        roots.insert("meta.v1.ListMeta".to_owned());
    }
    // Pages that are no objects need no schemas.
    let schemas = (!roots.is_empty()).then(|| {
        let mut schemas = components::definitions(roots, &everywhere, Dialect::V3);
        for (name, schema) in custom {
            schemas.set_at(&[&name], schema);
        }
        schemas
    });
    let schemas = schemas.map(|schemas| ("schemas", schemas));
    Value::map([
        ("openapi", Value::from("3.0.0")),
        ("info", Value::map([("title", "Kubernetes"), ("version", version)])),
        ("paths", Value::map(paths)),
        (
            "components",
            Value::map(schemas.into_iter().chain([(
                "securitySchemes",
                Value::map([(
                    "BearerToken",
                    Value::map([
                        ("type", "apiKey"),
                        ("description", "Bearer Token authentication"),
                        ("name", "authorization"),
                        ("in", "header"),
                    ]),
                )]),
            )])),
        ),
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
        components::reference(name, Dialect::V3)
    };
    let mut map = Map::new();
    map.insert("tags", Value::list([operation.tag.as_str()]));
    map.insert("operationId", operation.id.as_str());
    if !operation.parameters.is_empty() {
        map.insert("parameters", Value::list(operation.parameters.iter().map(parameter)));
    }
    let body = match &operation.body {
        None => None,
        Some(Body::Object(name)) => Some((content(&["*/*"], &refer(name)), true)),
        Some(Body::Patch(forms)) => Some((content(forms, &refer("meta.v1.Patch")), true)),
        Some(Body::DeleteOptions) => Some((content(&["*/*"], &refer("meta.v1.DeleteOptions")), false)),
    };
    if let Some((content, required)) = body {
        let mut body = Map::from_iter([("content".into(), content)]);
        if required {
            body.insert("required", true);
        }
        map.insert("requestBody", body);
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
        let response = Value::map([
            ("description", Value::from(description)),
            ("content", content(operation.produces, &schema)),
        ]);
        responses.insert(*code, response);
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

fn content(types: &[&str], schema: &Value) -> Value {
    Value::map(types.iter().map(|media| (*media, Value::map([("schema", schema.clone())]))))
}

fn parameter(parameter: &Parameter) -> Value {
    let mut map = Map::new();
    map.insert("name", parameter.name);
    map.insert("in", if parameter.in_path { "path" } else { "query" });
    if parameter.in_path {
        map.insert("required", true);
    }
    map.insert(
        "schema",
        Value::map([("type", Value::from(parameter.kind)), ("uniqueItems", Value::Bool(true))]),
    );
    Value::Map(map)
}
