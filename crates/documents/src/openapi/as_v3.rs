//! Converts an OpenAPI v2 document to v3, for aggregated API servers that publish only v2.

use value::{Map, Str, Value};

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// Limits on the size of the result: a multiple of the original size, plus an allowance for small documents.
const GROWTH: usize = 4;
const SMALL: usize = 1 << 20;

/// Converts a v2 document to v3. Parts without an equivalent are omitted; references to parameters are resolved.
///
/// A short reference may resolve to a long parameter, and a schema is repeated for every media type. Returns `None` if the document
/// would become too large.
pub(super) fn as_v3(document: &Value) -> Option<Value> {
    let left = GROWTH.saturating_mul(size(document)).saturating_add(SMALL);
    let mut copies = Copies { shared: document.at(&["parameters"]), left };
    let mut made = Value::map([("openapi", "3.0.0")]);
    copy(document, &mut made, &["info", "externalDocs"]);
    let paths = entries(document.get("paths")).map(|(path, item)| Some((path.clone(), copies.path(item)?)));
    made.set_at(&["paths"], Value::map(paths.collect::<Option<Vec<_>>>()?));
    let schemas: Vec<_> =
        entries(document.get("definitions")).map(|(name, own)| (name.clone(), schema(own))).collect();
    if !schemas.is_empty() {
        made.set_at(&["components", "schemas"], Value::map(schemas));
    }
    Some(made)
}

/// Approximate length of a value as JSON.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len(),
        Value::List(list) => list.iter().map(size).sum(),
        Value::Map(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    }
}

/// Copies parts of the v2 document that the v3 document has to repeat.
struct Copies<'a> {
    /// The shared parameters, which operations reference by name.
    shared: Option<&'a Value>,
    /// How many more bytes may be copied.
    left: usize,
}

impl<'a> Copies<'a> {
    fn path(&mut self, item: &'a Value) -> Option<Value> {
        let mut made = extensions(item);
        copy(item, &mut made, &["$ref"]);
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                made.set_at(&[method], self.operation(operation)?);
            }
        }
        let list = self.parameters(item)?;
        if !list.is_empty() {
            made.set_at(&["parameters"], list.into_iter().map(parameter).collect::<Vec<_>>());
        }
        Some(made)
    }

    fn operation(&mut self, operation: &'a Value) -> Option<Value> {
        let mut made = extensions(operation);
        copy(
            operation,
            &mut made,
            &["description", "externalDocs", "tags", "summary", "deprecated", "operationId"],
        );
        let (bodies, others): (Vec<&Value>, Vec<&Value>) = self
            .parameters(operation)?
            .into_iter()
            .partition(|own| own.str_at(&["in"]) == Some("body") && own.get("schema").is_some());
        if let Some(body) = bodies.last().and_then(|body| body.get("schema")) {
            let content = self.content(operation.list_at(&["consumes"]), body)?;
            made.set_at(&["requestBody"], Value::map([("content", content)]));
        }
        if !others.is_empty() {
            made.set_at(&["parameters"], others.into_iter().map(parameter).collect::<Vec<_>>());
        }
        let produces = operation.list_at(&["produces"]);
        let responses = entries(operation.get("responses")).map(|(code, own)| {
            if code.starts_with("x-") {
                return Some((code.clone(), own.clone()));
            }
            let mut made = extensions(own);
            copy(own, &mut made, &["description"]);
            if let Some(answer) = own.get("schema")
                && !produces.is_empty()
            {
                made.set_at(&["content"], self.content(produces, answer)?);
            }
            Some((code.clone(), made))
        });
        made.set_at(&["responses"], Value::map(responses.collect::<Option<Vec<_>>>()?));
        Some(made)
    }

    /// Repeats one schema for every media type.
    fn content(&mut self, types: &[Value], of: &Value) -> Option<Value> {
        let schema = schema(of);
        let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
        let named: usize = types.iter().map(|media| media.len()).sum();
        self.spend(size(&schema).saturating_mul(types.len()).saturating_add(named))?;
        let types = types.into_iter().map(|media| (media, Value::map([("schema", schema.clone())])));
        Some(Value::map(types))
    }

    /// The parameters of a path or an operation with their references resolved. Dangling references are omitted.
    fn parameters(&mut self, holder: &'a Value) -> Option<Vec<&'a Value>> {
        let mut found = Vec::new();
        for own in holder.list_at(&["parameters"]) {
            let Some(reference) = own.str_at(&["$ref"]) else {
                found.push(own);
                continue;
            };
            let name = reference.strip_prefix("#/parameters/");
            if let Some(target) = name.and_then(|name| self.shared?.get(name)) {
                self.spend(size(target))?;
                found.push(target);
            }
        }
        Some(found)
    }

    fn spend(&mut self, size: usize) -> Option<()> {
        self.left = self.left.checked_sub(size)?;
        Some(())
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

/// Converts a schema and updates its references. In v3 a reference has no siblings, so one with siblings moves into an `allOf`.
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

/// The entries of a map; none for other values.
fn entries(map: Option<&Value>) -> impl Iterator<Item = (&Str, &Value)> {
    map.and_then(Value::as_map).into_iter().flat_map(Map::iter)
}

/// The vendor extensions, which start with `x-`.
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
