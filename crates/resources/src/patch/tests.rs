use value::{Value, json, write};

use super::*;
use crate::schema::Schema;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn outcome(result: Result<Value, String>) -> String {
    match result {
        Ok(value) => format!("= {}", write::to_string(&value)),
        Err(error) => format!("! {error}"),
    }
}

/// Each case is two lines: a patch of [`DOCUMENT`] and what kube-apiserver's library makes of it.
#[test]
fn json_patches_apply_as_in_kubernetes() {
    const DOCUMENT: &str = r#"{"a":{"b":[1,2,3],"c":null},"d":"x","e/f":{"~g":1}}"#;
    let lines: Vec<&str> = include_str!("json_patch_cases.txt").lines().collect();
    for case in lines.chunks(2) {
        let operations = json_patch::decode(parse(case[0]));
        let result = operations.and_then(|operations| json_patch::apply(parse(DOCUMENT), &operations));
        assert_eq!(outcome(result), case[1], "{}", case[0]);
    }
}

/// Each case is three lines: an object, a patch, and what kube-apiserver's library makes of them.
#[test]
fn merge_patches_apply_as_in_kubernetes() {
    let lines: Vec<&str> = include_str!("merge_patch_cases.txt").lines().collect();
    for case in lines.chunks(3) {
        let result = merge_patch::apply(parse(case[0]), parse(case[1]));
        assert_eq!(outcome(result), case[2], "{}\n{}", case[0], case[1]);
    }
}

#[test]
fn copies_may_not_add_more_than_the_limit() {
    let document = Value::map([("a", Value::from("x".repeat(1024 * 1024)))]);
    let copies = |count: usize| {
        let list: Vec<String> =
            (0..count).map(|i| format!(r#"{{"op":"copy","from":"/a","path":"/c{i}"}}"#)).collect();
        let operations = json_patch::decode(parse(&format!("[{}]", list.join(",")))).unwrap();
        json_patch::apply(document.clone(), &operations)
    };
    assert!(copies(2).is_ok());
    assert_eq!(
        copies(3).unwrap_err(),
        "Unable to complete the copy, the accumulated size increase of copy is 3145734, exceeding the limit 3145728"
    );
}

#[test]
fn copies_of_copies_do_not_nest_without_end() {
    let mut operations = Vec::new();
    for i in 0..20 {
        let path = "/a".repeat((1 << i) + 1);
        operations.push(format!(r#"{{"op":"copy","from":"/a","path":"{path}"}}"#));
    }
    let operations = json_patch::decode(parse(&format!("[{}]", operations.join(",")))).unwrap();
    let error = json_patch::apply(parse(r#"{"a":{}}"#), &operations).unwrap_err();
    assert_eq!(error, "error while adding value during copy: exceeded max depth");
}

#[test]
fn many_operations_on_one_long_list_are_refused_early() {
    let document = Value::map([("a", Value::list(vec![Value::Null; 300_000]))]);
    let operations = vec![r#"{"op":"add","path":"/a/0"}"#; 5_000].join(",");
    let operations = json_patch::decode(parse(&format!("[{operations}]"))).unwrap();
    let error = json_patch::apply(document, &operations).unwrap_err();
    assert_eq!(error, "error in add for path: '/a/0': the patch takes too much work");
}

#[track_caller]
fn refused(kind: Kind<&Schema>, patch: &str, strict: bool, code: u16, message: &str) {
    let current = parse(r#"{"metadata":{"name":"x"}}"#);
    let status = apply(kind, &current, patch.as_bytes(), strict).unwrap_err();
    assert_eq!((status.code(), status.message()), (code, message), "{patch}");
}

#[test]
fn refusals_have_kubernetes_codes_and_words() {
    let pod = crate::schema::of("", "v1", "Pod").unwrap();
    for kind in [Kind::Json, Kind::Merge, Kind::StrategicMerge(pod)] {
        refused(kind, "{", true, 400, "invalid JSON patch");
    }
    refused(
        Kind::Json,
        "{}",
        true,
        400,
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    refused(
        Kind::Json,
        "{}",
        false,
        400,
        "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
    );
    refused(
        Kind::Json,
        r#"[{"op":1}]"#,
        true,
        400,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
    );
    refused(
        Kind::Json,
        r#"[{"op":"remove","path":"/nope"}]"#,
        true,
        422,
        "the server rejected our request due to an error in our request",
    );
    let many = format!("[{}]", vec!["{}"; 10_001].join(","));
    refused(
        Kind::Json,
        &many,
        true,
        413,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
    refused(Kind::Merge, "null", true, 400, "Invalid JSON Patch");
    refused(
        Kind::Merge,
        "[]",
        true,
        400,
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
    );
    refused(
        Kind::StrategicMerge(pod),
        "5",
        true,
        400,
        "json: cannot unmarshal number into Go value of type map[string]interface {}",
    );
    refused(
        Kind::StrategicMerge(pod),
        r#"{"metadata":{"$retainKeys":1}}"#,
        true,
        400,
        "invalid patch format of retainKeys",
    );
    refused(
        Kind::StrategicMerge(pod),
        r#"{"metadata":{"$patch":"x"}}"#,
        true,
        500,
        "unknown patch type: x in map: map[$patch:x]",
    );
}

#[test]
fn strict_validation_notes_repeated_and_unknown_fields_of_the_patch() {
    let current = parse(r#"{"a":1}"#);
    let strict = |kind: Kind<&Schema>, patch: &str, strict| {
        apply(kind, &current, patch.as_bytes(), strict).unwrap().strict
    };
    let patch = r#"[{"op":"test","op":"add","path":"/b","value":1,"x":2}]"#;
    assert_eq!(
        strict(Kind::Json, patch, true),
        [r#"json patch duplicate field "[0].op""#, r#"json patch unknown field "[0].x""#]
    );
    assert!(strict(Kind::Json, patch, false).is_empty());
    assert_eq!(strict(Kind::Merge, r#"{"b":{"c":1,"c":2}}"#, true), [r#"duplicate field "b.c""#]);
}

#[test]
fn undecodable_results_are_quoted() {
    let status = undecodable("map[spec:1]", "why");
    assert_eq!(status.code(), 422);
    assert_eq!(status.message(), r#" "" is invalid: patch: Invalid value: "map[spec:1]": why"#);
}
