//! A version 2 document → a version 3 document, for servers that have no other.

use value::{Map, Str, Value};

/// The operations of a path.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// The version 3 form of a version 2 document. What has no place in it is left out; references to parameters are resolved.
pub(super) fn as_v3(document: &Value) -> Value {
    let mut made = Value::map([("openapi", "3.0.0")]);
    copy(document, &mut made, &["info", "externalDocs"]);
    let shared = document.at(&["parameters"]);
    let paths = entries(document.get("paths")).map(|(path, item)| {
        let mut made = extensions(item);
        copy(item, &mut made, &["$ref"]);
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                made.set_at(&[method], converted(operation, shared));
            }
        }
        let list = parameters(item.list_at(&["parameters"]), shared);
        if !list.is_empty() {
            made.set_at(&["parameters"], list);
        }
        (path.clone(), made)
    });
    made.set_at(&["paths"], Value::map(paths));
    let schemas: Vec<_> =
        entries(document.get("definitions")).map(|(name, own)| (name.clone(), schema(own))).collect();
    if !schemas.is_empty() {
        made.set_at(&["components", "schemas"], Value::map(schemas));
    }
    made
}

fn converted(operation: &Value, shared: Option<&Value>) -> Value {
    let mut made = extensions(operation);
    copy(
        operation,
        &mut made,
        &["description", "externalDocs", "tags", "summary", "deprecated", "operationId"],
    );
    let resolved = operation.list_at(&["parameters"]).iter().filter_map(|own| resolve(own, shared));
    let (bodies, others): (Vec<&Value>, Vec<&Value>) =
        resolved.partition(|own| own.str_at(&["in"]) == Some("body") && own.get("schema").is_some());
    if let Some(body) = bodies.last().and_then(|body| body.get("schema")) {
        let content = content(operation.list_at(&["consumes"]), body);
        made.set_at(&["requestBody"], Value::map([("content", content)]));
    }
    if !others.is_empty() {
        made.set_at(&["parameters"], others.into_iter().map(parameter).collect::<Vec<_>>());
    }
    let produces = operation.list_at(&["produces"]);
    let responses = entries(operation.get("responses")).map(|(code, own)| {
        if code.starts_with("x-") {
            return (code.clone(), own.clone());
        }
        let mut made = extensions(own);
        copy(own, &mut made, &["description"]);
        if let Some(answer) = own.get("schema")
            && !produces.is_empty()
        {
            made.set_at(&["content"], content(produces, answer));
        }
        (code.clone(), made)
    });
    made.set_at(&["responses"], Value::map(responses));
    made
}

/// One schema in every media type.
fn content(types: &[Value], of: &Value) -> Value {
    let types = types.iter().filter_map(Value::as_str);
    Value::map(types.map(|media| (Str::from(media), Value::map([("schema", schema(of))]))))
}

fn parameters(list: &[Value], shared: Option<&Value>) -> Vec<Value> {
    list.iter().filter_map(|own| resolve(own, shared)).map(parameter).collect()
}

/// What a parameter that stands for another one stands for.
fn resolve<'a>(own: &'a Value, shared: Option<&'a Value>) -> Option<&'a Value> {
    match own.str_at(&["$ref"]) {
        Some(reference) => shared?.get(reference.strip_prefix("#/parameters/")?),
        None => Some(own),
    }
}

fn parameter(own: &Value) -> Value {
    let mut made = extensions(own);
    copy(own, &mut made, &["name", "in", "description", "required", "allowEmptyValue"]);
    let described = own.get("schema").map_or_else(
        || {
            let mut simple = Value::map::<&str, Value>([]);
            copy(own, &mut simple, &["type", "format", "uniqueItems"]);
            simple
        },
        schema,
    );
    made.set_at(&["schema"], described);
    made
}

/// A schema whose references lead to where schemas are now. A reference stands alone: what is beside it is said around it.
fn schema(own: &Value) -> Value {
    let Some(map) = own.as_map() else { return own.clone() };
    let mut made = Map::new();
    for (field, value) in map.iter() {
        let value = match field.as_str() {
            "properties" => Value::map(entries(Some(value)).map(|(name, own)| (name.clone(), schema(own)))),
            "items" | "additionalProperties" | "additionalItems" | "not" => match value {
                Value::List(list) => Value::from(list.iter().map(schema).collect::<Vec<_>>()),
                one => schema(one),
            },
            "allOf" | "anyOf" | "oneOf" => {
                let list = value.as_list().unwrap_or_default();
                Value::from(list.iter().map(schema).collect::<Vec<_>>())
            }
            "$ref" => {
                let target = value.as_str().unwrap_or_default();
                let name = target.strip_prefix("#/definitions/");
                name.map_or_else(|| value.clone(), |name| format!("#/components/schemas/{name}").into())
            }
            _ => value.clone(),
        };
        made.insert(field.clone(), value);
    }
    if made.len() > 1
        && let Some(reference) = made.remove("$ref")
    {
        made.insert("allOf", vec![Value::map([("$ref", reference)])]);
    }
    Value::Map(made)
}

/// The entries of a map; none if it is no map.
fn entries(map: Option<&Value>) -> impl Iterator<Item = (&Str, &Value)> {
    map.and_then(Value::as_map).into_iter().flat_map(Map::iter)
}

/// What vendors add.
fn extensions(own: &Value) -> Value {
    let added = entries(Some(own)).filter(|(field, _)| field.starts_with("x-"));
    Value::map(added.map(|(field, value)| (field.clone(), value.clone())))
}

fn copy(from: &Value, to: &mut Value, fields: &[&str]) {
    for field in fields {
        if let Some(value) = from.get(field) {
            to.set_at(&[field], value.clone());
        }
    }
}
