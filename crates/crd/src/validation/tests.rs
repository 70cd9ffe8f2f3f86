//! Compares validation errors with those of kube-apiserver 1.37.

use value::{Budget, Value, json};

use super::{CrdValidationContext, create, update};

/// A CRD with additional fields in its root schema and its version, decoded as the server does.
fn crd(root: &str, version: &str) -> Value {
    let text = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"ts.g.example.com"}},
        "spec":{{"group":"g.example.com","scope":"Cluster","names":{{"plural":"ts","singular":"t","kind":"T","listKind":"TList"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object"{root}}}}}{version}}}]}},
        "status":{{"storedVersions":["v1"]}}}}"#
    );
    decoded(&text)
}

fn decoded(text: &str) -> Value {
    let mut object = json::parse(text.as_bytes()).unwrap();
    let schema = schema::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    assert_eq!(schema::decode::normalize(&mut object, schema).type_error(&[]), None);
    object
}

fn context() -> CrdValidationContext {
    CrdValidationContext {
        stopwatch: None,
        budget: Budget::UNLIMITED,
        overlapping: crate::tests::overlapping,
    }
}

fn errors(crd: &Value) -> Vec<String> {
    create(crd, &context()).iter().map(ToString::to_string).collect()
}

/// The errors for the schema of one property of the spec.
fn of_property(schema: &str) -> Vec<String> {
    let root = format!(r#","properties":{{"spec":{{"type":"object","properties":{{"a":{schema}}}}}}}"#);
    let before = "spec.validation.openAPIV3Schema.properties[spec].properties[a]";
    errors(&crd(&root, "")).iter().map(|error| error.replace(before, "")).collect()
}

#[test]
fn an_empty_field_differs_from_an_absent_one() {
    let forbidden = ".dependencies: Forbidden: dependencies is not supported";
    assert_eq!(of_property(r#"{"type":"string","dependencies":{}}"#), [forbidden]);
    assert_eq!(of_property(r#"{"type":"string","definitions":{},"patternProperties":{}}"#), [""; 0]);
    let status = r#","subresources":{"status":{}}"#;
    let refused = errors(&crd(r#","oneOf":[]"#, status));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains(r#""OneOf":[],"AnyOf":null"#), "{refused:?}");
    assert!(errors(&crd("", status)).is_empty());
    // An empty list makes one of the two alternatives more than a type.
    let either = r#"{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"FIELD}]}"#;
    assert_eq!(of_property(&either.replace("FIELD", "")), [""; 0]);
    assert_eq!(of_property(&either.replace("FIELD", r#","additionalProperties":false"#)), [""; 0]);
    assert_eq!(of_property(&either.replace("FIELD", r#","required":[]"#)).len(), 2);
}

#[test]
fn an_unreadable_schema_is_not_validated_further() {
    let found = of_property(r#"{"type":"string","additionalItems":{},"additionalProperties":{}}"#);
    assert_eq!(found, [".additionalItems: Forbidden: additionalItems is not supported"]);
    let rule =
        r#"{"type":"object","$schema":"x","x-kubernetes-validations":[{"rule":"true","fieldPath":".nope"}]}"#;
    let found = of_property(rule);
    let only =
        "spec.validation.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported";
    assert_eq!(found, [only]);
    assert_eq!(of_property(&rule.replace(r#""$schema":"x","#, "")).len(), 1);
    let selects = r#","selectableFields":[{"jsonPath":"x"}]"#;
    let found = errors(&crd(r##","$ref":"#/x""##, selects));
    assert_eq!(
        found,
        [
            "spec.validation.openAPIV3Schema.$ref: Forbidden: $ref is not supported",
            "spec.schema.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema '$ref' is not supported",
            "spec.selectableFields[0].jsonPath: Invalid value: \"x\": is an invalid path: expected [ or . but got: x",
        ]
    );
}

#[test]
fn values_are_quoted_as_go_writes_them() {
    let found = errors(&crd("", ",\"deprecationWarning\":\"\u{a0}x\""));
    let words = "spec.versions[0].deprecationWarning: Invalid value: \"\u{a0}x\": can only be set for deprecated versions";
    assert_eq!(found, [words]);
    let mut without = crd("", "");
    without.remove_at(&["spec", "versions"]);
    assert!(errors(&without)[0].starts_with("spec.versions: Invalid value: null: must have exactly one"));
    let docs = r#","externalDocs":{"url":"x"},"oneOf":[],"dependencies":{"a":["b"]}"#;
    let found = errors(&crd(docs, r#","subresources":{"status":{}}"#));
    assert!(found[0].contains(r#""ExternalDocs":{"Description":"","URL":"x"}"#), "{found:?}");
    assert!(found[0].contains(r#""Dependencies":{"a":{"Schema":null,"Property":["b"]}}"#), "{found:?}");
}

#[test]
fn defaults_are_validated_against_every_format_and_limit() {
    let found = of_property(r#"{"type":"boolean","format":"int32","default":5}"#);
    assert_eq!(found, [".default: Invalid value: \"int64\":  in body must be of type int32: \"int64\""]);
    let found = of_property(r#"{"type":"string","maxLength":-1,"default":"x"}"#);
    assert_eq!(found, [".default: Too long: value is too long"]);
    let empty = r#"{"type":"string","default":"x","x-kubernetes-validations":[{"rule":" "}]}"#;
    let found = of_property(empty);
    assert_eq!(found, [".x-kubernetes-validations[0].rule: Required value: rule is not specified"]);
    let found = errors(&crd(r#","properties":{"metadata":{"type":"object","default":false}}"#, ""));
    let words = "spec.validation.openAPIV3Schema.properties[metadata].default: Invalid value: false: must result in valid metadata: metadata: Invalid value: false: json: cannot unmarshal bool into Go value of type v1.ObjectMeta";
    assert_eq!(found[0], words);
}

#[test]
fn a_version_that_is_repeated_is_not_stored_twice() {
    let mut twice = crd("", "");
    let version = twice.at(&["spec", "versions"]).and_then(Value::as_list).unwrap()[0].clone();
    twice.set_at(&["spec", "versions"], Value::List(vec![version.clone(), version]));
    let found = errors(&twice);
    assert_eq!(
        found.last().map(String::as_str),
        Some("status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v1")
    );
}

#[test]
fn an_update_that_only_empties_absent_fields_is_no_change() {
    let old = crd(r#","properties":{"spec":{"type":"object"}}"#, "");
    let new = crd(r#","properties":{"spec":{"type":"object","properties":{},"required":[]}}"#, "");
    assert!(super::same(new.at(&["spec"]), old.at(&["spec"])));
    assert!(update(&new, &old, &context()).iter().all(|error| error.field.starts_with("metadata")));
}

#[test]
fn each_unrecognized_format_causes_one_warning_unless_it_is_old() {
    let of = |formats: &str| crd(&format!(r#","properties":{{{formats}}}"#), "");
    let field = |name: &str, format: &str| format!(r#""{name}":{{"type":"string","format":"{format}"}}"#);
    let new = of(&[field("a", "one"), field("b", "two"), field("c", "one"), field("d", "date")].join(","));
    assert_eq!(super::warnings(&new, None), ["unrecognized format \"one\"", "unrecognized format \"two\""]);
    let old = of(&field("z", "two"));
    assert_eq!(super::warnings(&new, Some(&old)), ["unrecognized format \"one\""]);
    assert_eq!(super::warnings(&new, Some(&new)), Vec::<String>::new());
}

#[test]
fn validation_of_many_versions_ends_when_the_request_does() {
    let mut crd = crd("", "");
    let version = crd.list_at(&["spec", "versions"])[0].clone();
    let many = (0..1000).map(|number| {
        let mut version = version.clone();
        version.set_at(&["name"], "Not a name");
        version.set_at(&["storage"], number == 0);
        version
    });
    crd.set_at(&["spec", "versions"], Value::List(many.collect()));
    let budget = Budget::new(u64::MAX);
    let count = |budget: &Budget| {
        let context = CrdValidationContext { budget: budget.clone(), ..context() };
        let old = decoded(&value::write::to_string(&crd));
        (create(&crd, &context).iter().count(), update(&crd, &old, &context).iter().count())
    };
    let (created, updated) = count(&budget);
    assert!(created > 1000 && updated > 1000, "{created}, {updated}");
    budget.cancel();
    let (created, updated) = count(&budget);
    assert!(0 < created && created < 20 && 0 < updated && updated < 20, "{created}, {updated}");
}
