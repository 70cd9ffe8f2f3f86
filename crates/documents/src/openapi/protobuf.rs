//! Encodes the Swagger document as protobuf messages of gnostic's `openapi.v2` package.
//!
//! Only fields that occur in our documents are encoded. The field numbers are those of `OpenAPIv2.proto`.

use schema::protobuf;
use value::{Map, Value, write};

pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = ProtobufWriter::default();
    out.text(1, document.str_at(&["swagger"]));
    if let Some(info) = document.get("info") {
        out.message(2, |out| {
            out.text(1, info.str_at(&["title"]));
            out.text(2, info.str_at(&["version"]));
        });
    }
    out.message(8, |out| {
        for (path, item) in entries(document, "paths") {
            out.message(2, |out| {
                out.text(1, Some(path));
                out.message(2, |out| path_item(out, item));
            });
        }
    });
    out.message(9, |out| named_schemas(out, document, "definitions"));
    for requirement in document.list_at(&["security"]) {
        out.message(12, |out| {
            for (name, _) in requirement.as_map().into_iter().flat_map(Map::iter) {
                out.message(1, |out| {
                    out.text(1, Some(name));
                    out.message(2, |_| {});
                });
            }
        });
    }
    out.message(13, |out| {
        for (name, definition) in entries(document, "securityDefinitions") {
            out.message(1, |out| {
                out.text(1, Some(name));
                out.message(2, |out| {
                    out.message(2, |out| {
                        out.text(1, definition.str_at(&["type"]));
                        out.text(2, definition.str_at(&["name"]));
                        out.text(3, definition.str_at(&["in"]));
                        out.text(4, definition.str_at(&["description"]));
                    });
                });
            });
        }
    });
    out.bytes
}

/// A message under construction.
#[derive(Default)]
struct ProtobufWriter {
    bytes: Vec<u8>,
}

impl ProtobufWriter {
    fn block(&mut self, field: usize, bytes: &[u8]) {
        protobuf::write::bytes(&mut self.bytes, field, bytes);
    }

    fn text(&mut self, field: usize, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.block(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: usize, list: &[Value]) {
        for text in list.iter().filter_map(Value::as_str) {
            self.block(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: usize, set: bool) {
        if set {
            protobuf::write::int(&mut self.bytes, field, 1);
        }
    }

    fn message(&mut self, field: usize, fill: impl FnOnce(&mut ProtobufWriter)) {
        let mut inner = ProtobufWriter::default();
        fill(&mut inner);
        self.block(field, &inner.bytes);
    }

    /// Encodes an `Any`: the value as YAML, which includes JSON.
    fn any(&mut self, field: usize, value: &Value) {
        self.message(field, |out| {
            let yaml = write::to_string(value) + "\n";
            out.text(2, Some(&yaml));
        });
    }

    /// Encodes the `x-` members of `map` as `NamedAny`.
    fn extensions(&mut self, field: usize, map: Option<&Map>) {
        for (name, value) in map.into_iter().flat_map(Map::iter).filter(|(name, _)| name.starts_with("x-")) {
            self.message(field, |out| {
                out.text(1, Some(name));
                out.any(2, value);
            });
        }
    }
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = value.get(key).and_then(Value::as_map);
    map.into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

fn path_item(out: &mut ProtobufWriter, item: &Value) {
    const METHODS: [(&str, usize); 7] =
        [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("options", 6), ("head", 7), ("patch", 8)];
    for (method, field) in METHODS {
        if let Some(value) = item.get(method) {
            out.message(field, |out| operation(out, value));
        }
    }
    for value in item.list_at(&["parameters"]) {
        out.message(9, |out| parameter(out, value));
    }
}

fn operation(out: &mut ProtobufWriter, operation: &Value) {
    out.texts(1, operation.list_at(&["tags"]));
    out.text(5, operation.str_at(&["operationId"]));
    out.texts(6, operation.list_at(&["produces"]));
    out.texts(7, operation.list_at(&["consumes"]));
    for value in operation.list_at(&["parameters"]) {
        out.message(8, |out| parameter(out, value));
    }
    out.message(9, |out| {
        for (code, response) in entries(operation, "responses") {
            out.message(1, |out| {
                out.text(1, Some(code));
                out.message(2, |out| {
                    out.message(1, |out| {
                        out.text(1, response.str_at(&["description"]));
                        if let Some(value) = response.get("schema") {
                            out.message(2, |out| out.message(1, |out| schema(out, value)));
                        }
                    });
                });
            });
        }
    });
    out.texts(10, operation.list_at(&["schemes"]));
    out.extensions(13, operation.as_map());
}

/// Encodes a `ParametersItem` message.
fn parameter(out: &mut ProtobufWriter, parameter: &Value) {
    let text = |key: &str| parameter.str_at(&[key]);
    let required = parameter.bool_at(&["required"]).unwrap_or_default();
    let unique = parameter.bool_at(&["uniqueItems"]).unwrap_or_default();
    out.message(1, |out| match text("in") {
        Some("body") => out.message(1, |out| {
            out.text(2, text("name"));
            out.text(3, text("in"));
            out.flag(4, required);
            if let Some(value) = parameter.get("schema") {
                out.message(5, |out| schema(out, value));
            }
        }),
        Some("path") => out.message(2, |out| {
            out.message(4, |out| {
                out.flag(1, required);
                out.text(2, text("in"));
                out.text(4, text("name"));
                out.text(5, text("type"));
                out.flag(19, unique);
            });
        }),
        _ => out.message(2, |out| {
            out.message(3, |out| {
                out.flag(1, required);
                out.text(2, text("in"));
                out.text(4, text("name"));
                out.text(6, text("type"));
                out.flag(20, unique);
            });
        }),
    });
}

fn named_schemas(out: &mut ProtobufWriter, of: &Value, key: &str) {
    for (name, value) in entries(of, key) {
        out.message(1, |out| {
            out.text(1, Some(name));
            out.message(2, |out| schema(out, value));
        });
    }
}

fn schema(out: &mut ProtobufWriter, of: &Value) {
    out.text(1, of.str_at(&["$ref"]));
    out.text(2, of.str_at(&["format"]));
    out.text(4, of.str_at(&["description"]));
    out.texts(19, of.list_at(&["required"]));
    for value in of.list_at(&["enum"]) {
        out.any(20, value);
    }
    if let Some(values) = of.get("additionalProperties") {
        out.message(21, |out| out.message(1, |out| schema(out, values)));
    }
    if let Some(kind) = of.str_at(&["type"]) {
        out.message(22, |out| out.text(1, Some(kind)));
    }
    if let Some(items) = of.get("items") {
        out.message(23, |out| out.message(1, |out| schema(out, items)));
    }
    if of.get("properties").is_some() {
        out.message(25, |out| named_schemas(out, of, "properties"));
    }
    out.extensions(31, of.as_map());
}
