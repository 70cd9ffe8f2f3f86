use serde_json::json;

use super::generate;

fn lines(definition: &serde_json::Value, facts: &str) -> Result<Vec<String>, String> {
    let definitions = json!({ "$defs": { "io.k8s.api.core.v1.Thing": definition } });
    generate(&definitions, &format!("package core.v1\n{facts}"))
        .map(|text| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
        .map_err(|error| format!("{error:#}"))
}

#[test]
fn types_required_and_list_facts_come_from_the_definition() {
    let definition = json!({
        "properties": {
            "items": {
                "type": ["array", "null"], "items": { "type": ["string", "null"] },
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "a",
            },
            "name": { "type": "string" },
            "self": { "$ref": "#/$defs/io.k8s.api.core.v1.Thing" },
            "size": { "type": ["integer", "null"], "format": "int32" },
        },
        "required": ["name"],
        "x-kubernetes-group-version-kind": [{ "group": "", "version": "v1", "kind": "Thing" }],
    });
    assert_eq!(
        lines(&definition, "").unwrap(),
        [r#"core.v1.Thing @v1 items:[]str=map(a,b)^merge(a) name:str!?"" self:.Thing* size:i32"#]
    );
}

#[test]
fn facts_override_the_rules_and_named_types_get_their_own_line() {
    let definition = json!({ "properties": { "mode": { "type": "string" }, "self": { "$ref": "x/io.k8s.api.core.v1.Thing" } } });
    let facts = "enum core.v1.Mode A \"b c\" \"\"\nfield core.v1.Thing.mode pointer always type=core.v1.Mode default=\"A\"\n\
                 field core.v1.Thing.self value in=Base";
    assert_eq!(
        lines(&definition, facts).unwrap(),
        ["core.v1.Mode = str A b_c \"\"", r#"core.v1.Thing mode:.Mode*+?"A" self:.Thing+<Base?{}"#]
    );
}

#[test]
fn added_fields_are_sorted_among_the_fields_of_kubernetes() {
    let definition = json!({ "properties": { "b": { "type": "string" }, "d": { "type": "string" } } });
    let facts =
        "field core.v1.Thing.a added\nfield core.v1.Thing.c added type={}str\nfield core.v1.Thing.e added";
    assert_eq!(lines(&definition, facts).unwrap(), ["core.v1.Thing a:str b:str c:{}str d:str e:str"]);
}

#[test]
fn types_without_a_definition_are_sorted_among_the_others() {
    let definition = json!({ "properties": { "a": { "type": "string" } } });
    let facts = "type core.v1.Other @v1 path:str";
    assert_eq!(lines(&definition, facts).unwrap(), ["core.v1.Other @v1 path:str", "core.v1.Thing a:str"]);
    let error = lines(&definition, "type core.v1.Thing a:str").unwrap_err();
    assert!(error.contains("which the definitions have"), "{error}");
}

#[test]
fn fact_about_an_unknown_field_is_an_error() {
    let error = lines(&json!({ "properties": {} }), "field core.v1.Thing.gone pointer").unwrap_err();
    assert!(error.contains("core.v1.Thing.gone"), "{error}");
    let error = lines(&json!({}), "fact core.v1.Thing.gone pointer").unwrap_err();
    assert!(error.contains("unknown word"), "{error}");
}
