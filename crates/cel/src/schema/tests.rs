use std::sync::Arc;

use value::{Str, Value, json};

use super::{CelSchema, SchemaHints, SchemaTypes, escape, unescape};
use crate::{Activation, Env, ErrorKind, Type, Val, Version};

#[test]
fn names_are_escaped_as_kubernetes_escapes_them() {
    for (name, escaped) in [
        ("plain", Some("plain")),
        ("a__b", Some("a__underscores__b")),
        ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
        ("namespace", Some("__namespace__")),
        ("true", Some("__true__")),
        ("1a", None),
        ("", None),
        ("a$", None),
    ] {
        assert_eq!(escape(name).as_deref(), escaped, "{name}");
        if let Some(escaped) = escaped {
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
    }
    assert_eq!(unescape("a__namespace__"), None);
    assert_eq!(unescape("__unknown__"), None);
}

fn env(schema: &str) -> (Env, Arc<CelSchema>) {
    let schema = json::parse(schema.as_bytes()).unwrap();
    let schema = CelSchema::from_openapi(&schema, "selfType", true).unwrap();
    let env = Env::kubernetes(Version::CURRENT)
        .with_types(Arc::new(SchemaTypes::new([schema.clone()])))
        .with_variables([("self", schema.declared_type())]);
    (env, schema)
}

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "spec": {"type": "object", "required": ["replicas"], "properties": {
      "replicas": {"type": "integer"},
      "ratio": {"type": "number"},
      "port": {"x-kubernetes-int-or-string": true},
      "since": {"type": "string", "format": "date-time"},
      "wait": {"type": "string", "format": "duration"},
      "data": {"type": "string", "format": "byte"},
      "a-b": {"type": "string", "maxLength": 5},
      "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 10, "items": {"type": "string"}},
      "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}},
      "labels": {"type": "object", "additionalProperties": {"type": "string"}},
      "free": {"x-kubernetes-preserve-unknown-fields": true}
    }}
  }
}"#;

const DATA: &str = r#"{
  "apiVersion": "v1", "kind": "X", "metadata": {"name": "n"},
  "spec": {"replicas": 3, "ratio": 2, "port": "http", "since": "2020-01-01T00:00:00Z", "wait": "90s", "data": "aGk=",
    "a-b": "x", "tags": ["a", "b"], "ports": [{"name": "p", "n": 1}, {"name": "q", "n": 2}], "labels": {"k.x": "v"},
    "gone": null, "free": {"z": 1}}
}"#;

#[track_caller]
fn holds(expr: &str) {
    let (env, schema) = env(SCHEMA);
    let data = json::parse(DATA.as_bytes()).unwrap();
    let program = env.compile(expr).unwrap_or_else(|issues| panic!("{issues}")).program().unwrap();
    let activation = Activation::new(&env).with("self", Val::typed(&data, Some(&schema)));
    let outcome = program.run(&activation, u64::MAX).outcome;
    assert_eq!(outcome.unwrap().as_bool(), Some(true), "{expr}");
}

#[track_caller]
fn refused(expr: &str, message: &str) {
    let issues = env(SCHEMA).0.compile(expr).unwrap_err().to_string();
    assert!(issues.contains(message), "{issues}");
}

#[test]
fn values_have_the_cel_types_of_their_schema() {
    holds("self.spec.replicas == 3 && self.spec.ratio == 2.0 && type(self.spec.ratio) == double");
    holds("self.spec.since == timestamp('2020-01-01T00:00:00Z') && self.spec.wait == duration('90s')");
    holds("self.spec.data == b'hi' && self.spec.a__dash__b == 'x'");
    holds("type(self.spec.port) == string && self.metadata.name == 'n' && self.kind == 'X'");
    holds("self.spec.labels['k.x'] == 'v' && self.spec.labels.all(k, k.contains('.'))");
    holds("!has(self.metadata.generateName)");
}

/// The reserved words that the grammar accepts after a dot.
const RESERVED_FIELDS: [&str; 17] = [
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

#[test]
fn fields_named_like_reserved_words_need_no_escape() {
    const SCHEMA: &str = r#"{"type": "object", "properties": {
      "W": {"type": "string"},
      "spec": {"type": "object", "properties": {
        "W": {"type": "object", "properties": {"W": {"type": "integer"}}},
        "a-b": {"type": "string"},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["W"],
          "items": {"type": "object", "properties": {"W": {"type": "string"}, "n": {"type": "integer"}}}}
      }}
    }}"#;
    const DATA: &str = r#"{"W": "x", "spec": {"W": {"W": 1}, "a-b": "y",
      "list": [{"W": "p", "n": 1}, {"W": "q", "n": 2}]}}"#;
    for word in RESERVED_FIELDS {
        let (env, schema) = env(&SCHEMA.replace('W', word));
        let data = json::parse(DATA.replace('W', word).as_bytes()).unwrap();
        let absent = json::parse(b"{\"spec\": {}}").unwrap();
        for (expr, present, missing) in [
            ("has(self.W)", "true", "false"),
            ("has(self.__W__)", "true", "false"),
            ("self.W == 'x'", "true", "no such key: W"),
            ("self.__W__ == 'x'", "true", "no such key: __W__"),
            ("self.spec.W.W == 1", "true", "no such key: W"),
            ("has(self.spec.W.W) && self.spec.__W__.W == 1", "true", "no such key: W"),
            ("self.spec.list.exists(each, each.W == 'q' && each.n == 2)", "true", "no such key: list"),
            ("size(self.spec.list + self.spec.list) == 2", "true", "no such key: list"),
            ("dyn(self.spec)['W'].W == 1 && dyn(self.spec)['a-b'] == 'y'", "true", "no such key: W"),
        ] {
            let expr = expr.replace('W', word);
            let program = env.compile(&expr).unwrap_or_else(|issues| panic!("{issues}")).program().unwrap();
            for (data, expected) in [(&data, present), (&absent, missing)] {
                let activation = Activation::new(&env).with("self", Val::typed(data, Some(&schema)));
                let outcome = match program.run(&activation, u64::MAX).outcome {
                    Ok(val) => val.as_bool().unwrap().to_string(),
                    Err(error) => error.to_string(),
                };
                assert_eq!(outcome, expected.replace('W', word), "{expr}");
            }
        }
        let wrong = env.compile(&format!("self.{word} == 1")).unwrap_err().to_string();
        assert!(wrong.contains("applied to '(string, int)'"), "{wrong}");
    }
    refused("self.namespace == 'x'", "undefined field 'namespace'");
    refused("self.spec.__namespace__ == 'x'", "undefined field '__namespace__'");
    for word in ["true", "false", "null", "in"] {
        refused(&format!("self.spec.{word} == 1"), "Syntax error");
    }
}

#[test]
fn sets_and_keyed_lists_compare_and_join_without_order() {
    holds("self.spec.tags == ['b', 'a'] && self.spec.tags != ['a', 'c'] && ['b', 'a'] == self.spec.tags");
    holds("(self.spec.tags + ['b', 'c']) == ['a', 'b', 'c']");
    holds("size(self.spec.ports + self.spec.ports) == 2");
}

#[test]
fn undeclared_fields_are_compile_errors() {
    refused("self.spec.nope == 1", "undefined field 'nope'");
    refused("self.spec.free.z == 1", "undefined field 'free'");
    refused("self.spec.replicas == 'x'", "found no matching overload for '_==_' applied to '(int, string)'");
    refused("self.metadata.labels.size() > 0", "undefined field 'labels'");
}

#[test]
fn conversions_and_set_operations_on_large_values_count_towards_the_step_limit() {
    let (env, schema) = env(SCHEMA);
    let data = Value::from("QUJD".repeat(500_000));
    let tags = Value::list(["a", "b"].map(|tag| tag.repeat(1_000_000)));
    let spec = Value::map([("data", data), ("tags", tags)]);
    let object = Value::map([("spec", spec)]);
    for expr in
        ["size(self.spec.data) > 0", "self.spec.tags == self.spec.tags", "size(self.spec.tags + []) == 2"]
    {
        let expr = format!("lists.range(N).all(i, {expr})");
        let run = |turns: &str| {
            let program = env.compile(&expr.replace('N', turns)).unwrap().program().unwrap();
            let activation = Activation::new(&env).with("self", Val::typed(&object, Some(&schema)));
            program.run(&activation, u64::MAX).outcome.map(|val| val.as_bool())
        };
        assert_eq!(run("2").unwrap(), Some(true), "{expr}");
        assert!(matches!(run("600").unwrap_err().kind(), ErrorKind::CostLimit), "{expr}");
    }
}

/// A search through all properties for each property would take minutes.
#[test]
fn properties_of_large_objects_are_found_without_a_search() {
    let properties: Vec<String> = (0..100_000).map(|i| format!(r#""a-{i}":{{"type":"integer"}}"#)).collect();
    let inner = r#""z":{"type":"object","properties":{"q":{"type":"integer"}}}"#;
    let spec = format!(r#"{{"type":"object","properties":{{{},{inner}}}}}"#, properties.join(","));
    let (env, schema) = env(&format!(r#"{{"type":"object","properties":{{"spec":{spec}}}}}"#));
    let fields: Vec<String> = (0..100_000).map(|i| format!(r#""a-{i}":{i}"#)).collect();
    let data =
        json::parse(format!(r#"{{"spec":{{{},"z":{{"q":1}},"unknown":2}}}}"#, fields.join(",")).as_bytes())
            .unwrap();
    let selections = vec!["self.spec.z.q==1"; 5000].join("&&");
    for expr in
        ["dyn(self.spec) == dyn(self.spec) || true", "dyn(self.spec).all(k, k != 'unknown')", &selections]
    {
        let program = env.compile(expr).unwrap().program().unwrap();
        let activation = Activation::new(&env).with("self", Val::typed(&data, Some(&schema)));
        assert_eq!(program.run(&activation, u64::MAX).outcome.unwrap().as_bool(), Some(true));
    }
}

#[test]
fn schema_limits_bound_the_cost_estimate() {
    let (env, schema) = env(SCHEMA);
    let hints = SchemaHints::new([(Str::from("self"), schema)]);
    let bounded = env.compile("self.spec.tags.all(t, t == 'a')").unwrap().estimate(&hints);
    assert!(bounded.max < 100, "{bounded:?}");
    let unbounded = env.compile("self.spec.ports.all(p, p.name == 'a')").unwrap().estimate(&hints);
    assert!(unbounded.max > 1_000_000, "{unbounded:?}");
    assert_eq!(env.compile("self.spec.since").unwrap().output_type(), &Type::Timestamp);
}

#[test]
fn a_type_name_is_estimated_with_the_size_of_its_variable() {
    let (env, schema) = env(r#"{"type":"string","maxLength":10}"#);
    let hints = SchemaHints::new([(Str::from("self"), schema)]);
    let estimate = env.compile("type(self) == string").unwrap().estimate(&hints);
    assert!(estimate.max < 10, "{estimate:?}");
}
