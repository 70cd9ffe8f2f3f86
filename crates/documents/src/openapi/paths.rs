//! Writes paths and operations in either OpenAPI version.

use std::collections::BTreeSet;

use value::{Map, Value};

use super::components::{self, OpenApiVersion};
use super::operations::{OpenApiOperation, Parameter, PathItem, RequestContent, ResponseContent};

/// All operations of a path. The types they refer to are added to `roots`.
pub(super) fn path_item(item: &PathItem, openapi: OpenApiVersion, roots: &mut BTreeSet<String>) -> Value {
    let mut map = Map::new();
    for one in &item.operations {
        map.insert(one.method, operation(one, openapi, roots));
    }
    if !item.parameters.is_empty() {
        map.insert("parameters", Value::list(item.parameters.iter().map(|one| parameter(one, openapi))));
    }
    Value::Map(map)
}

fn operation(operation: &OpenApiOperation, openapi: OpenApiVersion, roots: &mut BTreeSet<String>) -> Value {
    let mut refer = |name: &str| {
        roots.insert(name.to_owned());
        components::reference(name, openapi)
    };
    let mut map = Map::new();
    map.insert("tags", Value::list([operation.tag.as_str()]));
    map.insert("operationId", operation.id.as_str());
    let consumes = match (&operation.body, operation.action) {
        (Some(RequestContent::Patch(forms)), _) => forms,
        (None, None) => operation.produces,
        _ => &["*/*"],
    };
    let body = match &operation.body {
        None => None,
        Some(RequestContent::Object(name)) => Some((refer(name), true)),
        Some(RequestContent::Patch(_)) => Some((refer("meta.v1.Patch"), true)),
        Some(RequestContent::DeleteOptions) => Some((refer("meta.v1.DeleteOptions"), false)),
    };
    let mut parameters: Vec<Value> = Vec::new();
    if let Some((schema, required)) = body {
        let required = required.then_some(("required", Value::Bool(true)));
        match openapi {
            OpenApiVersion::V2 => {
                let body = [("name", "body".into()), ("in", "body".into()), ("schema", schema)];
                parameters.push(Value::map(body.into_iter().chain(required)));
            }
            OpenApiVersion::V3 => {
                let body = [("content", content(consumes, &schema))];
                map.insert("requestBody", Value::map(body.into_iter().chain(required)));
            }
        }
    }
    parameters.extend(operation.parameters.iter().map(|one| parameter(one, openapi)));
    if !parameters.is_empty() {
        map.insert("parameters", parameters);
    }
    if openapi == OpenApiVersion::V2 {
        map.insert("consumes", Value::list(consumes.iter().copied()));
        map.insert("produces", Value::list(operation.produces.iter().copied()));
        map.insert("schemes", Value::list(["https"]));
    }
    let mut responses = Map::new();
    for (code, answer) in &operation.responses {
        let schema = match answer {
            ResponseContent::Object(name) => refer(name),
            ResponseContent::Text => Value::map([("type", "string")]),
        };
        let description = match *code {
            "201" => "Created",
            "202" => "Accepted",
            _ => "OK",
        };
        let of = match openapi {
            OpenApiVersion::V2 => ("schema", schema),
            OpenApiVersion::V3 => ("content", content(operation.produces, &schema)),
        };
        responses.insert(*code, Value::map([("description", Value::from(description)), of]));
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

fn parameter(parameter: &Parameter, openapi: OpenApiVersion) -> Value {
    let mut map = Map::new();
    map.insert("name", parameter.name);
    map.insert("in", if parameter.in_path { "path" } else { "query" });
    if parameter.in_path {
        map.insert("required", true);
    }
    let kind = [("type", Value::from(parameter.kind)), ("uniqueItems", Value::Bool(true))];
    match openapi {
        OpenApiVersion::V2 => {
            for (key, value) in kind {
                map.insert(key, value);
            }
        }
        OpenApiVersion::V3 => {
            map.insert("schema", Value::map(kind));
        }
    }
    Value::Map(map)
}

/// The security scheme for bearer tokens.
pub(super) fn bearer_token() -> Value {
    Value::map([(
        "BearerToken",
        Value::map([
            ("type", "apiKey"),
            ("description", "Bearer Token authentication"),
            ("name", "authorization"),
            ("in", "header"),
        ]),
    )])
}
