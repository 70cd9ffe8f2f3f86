//! CEL rules and patterns of CRDs that come from real projects.

use conformance::{Server, accepts, rejects};
use serde_json::{Value, json};

use super::{crd, define};

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

fn thing(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "rules.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn rules_read_fields_named_like_reserved_words() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let field = |word: &str| {
        let nested = json!({"type": "object", "properties": {word: {"type": "string"}},
            "x-kubernetes-validations": [{"rule": format!("!has(self.{word}) || self.{word} == self.__{word}__")}]});
        json!({"type": "object", "properties": {word: nested}})
    };
    let properties: serde_json::Map<String, Value> =
        RESERVED.iter().map(|word| (format!("a{word}"), field(word))).collect();
    let rules: Vec<Value> = RESERVED
        .iter()
        .map(|word| {
            let rule = format!("!has(self.a{word}.{word}.{word}) || self.a{word}.{word}.{word} == 'good'");
            json!({"rule": format!("!has(self.a{word}) || {rule}"), "message": format!("{word} is bad")})
        })
        .collect();
    let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
    let versions = json!([{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]);
    define(&client, &crd("rules.example.com", "words", "Word", &versions)).await;
    let path = "/apis/rules.example.com/v1/namespaces/default/words";
    for word in RESERVED {
        let object = |value: &str| {
            let outer = format!("a{word}");
            thing("Word", &format!("{word}-{value}"), &json!({outer: {word: {word: value}}}))
        };
        accepts(client.post(path, &object("good")).await).unwrap();
        let refused = rejects(client.post(path, &object("bad")).await, 422, "Invalid").unwrap();
        assert!(refused["message"].as_str().unwrap().contains(&format!("{word} is bad")), "{refused}");
    }
}

#[tokio::test]
async fn patterns_with_large_repetitions_of_unicode_classes_are_enforced() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let patterns = [
        (r"^\p{L}{250}$", "é".repeat(250), "é".repeat(249)),
        (r"^[\p{L}]{0,500}$", "é".repeat(500), "é".repeat(501)),
        (r"^([\p{L}]{0,62}\.){1,}([\p{L}]){2,63}$", "www.exämple.com".to_owned(), "é".repeat(63) + ".com"),
    ];
    let fields = patterns.iter().enumerate();
    let properties: serde_json::Map<String, Value> = fields
        .map(|(i, (pattern, ..))| (format!("f{i}"), json!({"type": "string", "pattern": pattern})))
        .collect();
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}]);
    define(&client, &crd("rules.example.com", "texts", "Text", &versions)).await;
    let path = "/apis/rules.example.com/v1/namespaces/default/texts";
    for (i, (pattern, good, bad)) in patterns.iter().enumerate() {
        let field = format!("f{i}");
        accepts(client.post(path, &thing("Text", &format!("good{i}"), &json!({field.as_str(): good}))).await)
            .unwrap();
        let refused =
            client.post(path, &thing("Text", &format!("bad{i}"), &json!({field.as_str(): bad}))).await;
        let refused = rejects(refused, 422, "Invalid").unwrap();
        let expected = format!("should match '{pattern}'");
        assert!(refused["message"].as_str().unwrap().contains(&expected), "{refused}");
    }
}
