use value::{Value, json, write};

use super::*;
use crate::Schema;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn outcome(result: Result<Value, String>) -> String {
    match result {
        Ok(value) => format!("= {}", write::to_string(&value)),
        Err(error) => format!("! {error}"),
    }
}

/// Each case has two lines: a patch of [`DOCUMENT`] and the output of kube-apiserver's library.
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

/// Each case has three lines: an object, a patch, and the output of kube-apiserver's library.
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

#[test]
fn many_operations_on_one_long_map_are_refused_early() {
    let entries = |count: usize| Value::map((0..count).map(|i| (format!("k{i:06}"), i.to_string())));
    let patched = |operation: &dyn Fn(usize) -> String| {
        let operations: Vec<String> = (0..10_000).map(operation).collect();
        let operations = json_patch::decode(parse(&format!("[{}]", operations.join(",")))).unwrap();
        json_patch::apply(Value::map([("a", entries(50_000))]), &operations).map(drop)
    };
    let too_much = |of: &str| {
        let error = patched(&|i| of.replace('#', &format!("{i:06}"))).unwrap_err();
        assert!(error.ends_with("the patch takes too much work"), "{error}");
    };
    too_much(r#"{"op":"add","path":"/a/a#","value":"1"}"#);
    too_much(r#"{"op":"remove","path":"/a/k#"}"#);
    too_much(r#"{"op":"move","from":"/a/k#","path":"/a/z#"}"#);
    // Setting an existing key or adding at the end shifts no other entries.
    assert_eq!(patched(&|i| format!(r#"{{"op":"add","path":"/a/k{i:06}","value":"1"}}"#)), Ok(()));
    assert_eq!(patched(&|i| format!(r#"{{"op":"add","path":"/a/z{i:06}","value":"1"}}"#)), Ok(()));
}

#[test]
fn a_json_patch_result_has_the_depth_limit_of_json() {
    let nested = |depth: usize| (0..depth).fold(Value::Null, |inner, _| Value::list([inner]));
    let replaced = |depth: usize| {
        let operation = Value::map([("op", "replace".into()), ("path", "".into()), ("value", nested(depth))]);
        let operations = json_patch::decode(Value::list([operation])).unwrap();
        json_patch::apply(Value::Null, &operations).map(|made| made.depth())
    };
    assert!(replaced(json::MAX_DEPTH).is_ok());
    assert_eq!(replaced(json::MAX_DEPTH + 1), Err("exceeded max depth".to_owned()));
}

/// Takes minutes if keys are inserted and removed one by one.
#[test]
fn many_keys_are_added_and_removed_in_one_patch() {
    const MANY: usize = 400_000;
    type Patch = fn(Value, Value, &'static Schema) -> Value;
    let data = |keys: std::iter::StepBy<std::ops::Range<usize>>, value: &Value| {
        let data = Value::map(keys.map(|i| (format!("k{i:06}"), value.clone())));
        Value::map([("data", data)])
    };
    let schema = crate::of("", "v1", "ConfigMap").unwrap();
    let (even, odd) = ((0..MANY).step_by(2), (1..MANY).step_by(2));
    let text = Value::from("v");
    let merge: Patch = |current, patch, _| merge_patch::apply(current, patch).unwrap();
    let strategic: Patch = |current, patch, schema| {
        let (Value::Map(current), Value::Map(patch)) = (current, patch) else { panic!() };
        Value::Map(strategic::merge(current, patch, schema).unwrap())
    };
    for patch in [merge, strategic] {
        let both = patch(data(even.clone(), &text), data(odd.clone(), &text), schema);
        assert_eq!(both, data((0..MANY).step_by(1), &text));
        assert_eq!(patch(both, data(even.clone(), &Value::Null), schema), data(odd.clone(), &text));
    }
}

#[test]
fn a_strategic_merge_handles_many_retained_keys_quickly() {
    let all = Value::list((0..200_000).map(|i| format!("r{i:06}")));
    let data = Value::map((0..200_000).map(|i| (format!("k{i:06}"), "v")));
    let patch = Value::map([("data", Value::map([("$retainKeys", all)]))]);
    let schema = crate::of("", "v1", "ConfigMap").unwrap();
    let map = |value: Value| value.as_map().unwrap().clone();
    let merged = strategic::merge(map(Value::map([("data", data)])), map(patch), schema).unwrap();
    assert_eq!(merged.get("data"), Some(&Value::Map(value::Map::new())));
}

#[test]
fn an_item_that_is_merged_into_again_and_again_is_refused_early() {
    let schema = crate::of("", "v1", "Pod").unwrap();
    let pod = |containers: Value| {
        let pod = Value::map([("spec", Value::map([("containers", containers)]))]);
        pod.as_map().unwrap().clone()
    };
    let container = |ports: std::ops::Range<i64>| {
        let ports = Value::list(ports.map(|port| Value::map([("containerPort", port)])));
        Value::map([("name", Value::from("a")), ("ports", ports)])
    };
    let merged = |times: usize| {
        let patch = Value::list(std::iter::repeat_n(container(0..1), times));
        strategic::merge(pod(Value::list([container(0..20_000)])), pod(patch), schema).map(drop)
    };
    assert_eq!(merged(10), Ok(()));
    assert_eq!(merged(2_000).unwrap_err().into_status().code(), 422);
}

#[track_caller]
fn refused(kind: PatchType<&Schema>, patch: &str, strict: bool, code: u16, message: &str) {
    let current = parse(r#"{"metadata":{"name":"x"}}"#);
    let status = apply(kind, &current, patch.as_bytes(), strict).unwrap_err();
    assert_eq!((status.code(), status.message()), (code, message), "{patch}");
}

#[test]
fn errors_have_kubernetes_codes_and_messages() {
    let pod = crate::of("", "v1", "Pod").unwrap();
    for kind in [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge(pod)] {
        refused(kind, "{", true, 400, "invalid JSON patch");
    }
    refused(
        PatchType::Json,
        "{}",
        true,
        400,
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    refused(
        PatchType::Json,
        "{}",
        false,
        400,
        "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
    );
    refused(
        PatchType::Json,
        r#"[{"op":1}]"#,
        true,
        400,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
    );
    refused(
        PatchType::Json,
        r#"[{"op":"remove","path":"/nope"}]"#,
        true,
        422,
        "the server rejected our request due to an error in our request",
    );
    let many = format!("[{}]", vec!["{}"; 10_001].join(","));
    refused(
        PatchType::Json,
        &many,
        true,
        413,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
    refused(PatchType::Merge, "null", true, 400, "Invalid JSON Patch");
    refused(
        PatchType::Merge,
        "[]",
        true,
        400,
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
    );
    refused(
        PatchType::StrategicMerge(pod),
        "5",
        true,
        400,
        "json: cannot unmarshal number into Go value of type map[string]interface {}",
    );
    refused(
        PatchType::StrategicMerge(pod),
        r#"{"metadata":{"$retainKeys":1}}"#,
        true,
        400,
        "invalid patch format of retainKeys",
    );
    refused(
        PatchType::StrategicMerge(pod),
        r#"{"metadata":{"$patch":"x"}}"#,
        true,
        500,
        "unknown patch type: x in map: map[$patch:x]",
    );
}

#[test]
fn strict_validation_notes_repeated_and_unknown_fields_of_the_patch() {
    let current = parse(r#"{"a":1}"#);
    let strict = |kind: PatchType<&Schema>, patch: &str, strict| {
        apply(kind, &current, patch.as_bytes(), strict).unwrap().strict
    };
    let patch = r#"[{"op":"test","op":"add","path":"/b","value":1,"x":2}]"#;
    assert_eq!(
        strict(PatchType::Json, patch, true),
        [r#"json patch duplicate field "[0].op""#, r#"json patch unknown field "[0].x""#]
    );
    assert!(strict(PatchType::Json, patch, false).is_empty());
    assert_eq!(strict(PatchType::Merge, r#"{"b":{"c":1,"c":2}}"#, true), [r#"duplicate field "b.c""#]);
}

#[test]
fn undecodable_results_are_quoted() {
    let status = undecodable("map[spec:1]", "why");
    assert_eq!(status.code(), 422);
    assert_eq!(status.message(), r#" "" is invalid: patch: Invalid value: "map[spec:1]": why"#);
}
