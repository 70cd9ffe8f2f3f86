use crate::{Map, Str, Value, json, write};

#[track_caller]
fn check(input: &str, canonical: &str) {
    let value = json::parse(input.as_bytes()).unwrap();
    assert_eq!(write::to_string(&value), canonical);
}

#[track_caller]
fn refuse(input: &str, message: &str) {
    assert_eq!(json::parse(input.as_bytes()).unwrap_err().message, message);
}

#[test]
fn keys_are_sorted_and_white_space_is_dropped() {
    check(r#" {"b": 1, "a": [true, null, "x"] } "#, r#"{"a":[true,null,"x"],"b":1}"#);
}

#[test]
fn json_field_offsets_are_found() {
    let text = br#"{"z": [1, {"b,}": {"x": "\"]"}, "a": 1}], "m": {"k": 1, "k": 2}, "a": {}}"#;
    let offsets = json::offsets(text, &["a", "m.k", "z[1].a", "z[1].b,}.x", "nowhere"]);
    let text = std::str::from_utf8(text).unwrap();
    assert_eq!(offsets[0], text.find(r#""a": {}"#).unwrap());
    assert_eq!(offsets[1], text.find(r#""k": 2"#).unwrap(), "the one that repeats the key");
    assert_eq!(offsets[2], text.find(r#""a": 1}"#).unwrap());
    assert_eq!(offsets[3], text.find(r#""x""#).unwrap());
    assert_eq!(offsets[4], usize::MAX);
}

#[test]
fn offsets_in_truncated_json_are_found() {
    assert_eq!(json::offsets(br#"{"a": {"b"#, &["a", "a.b"])[0], 1);
    assert_eq!(json::offsets(br#"]},"\"#, &["a"]), [usize::MAX]);
}

#[test]
fn numbers_are_written_as_go_writes_them() {
    check("[0,-1,9223372036854775807]", "[0,-1,9223372036854775807]");
    check("[1.0,1.5,1e21,1e20,1e-7,-0.0]", "[1,1.5,1e+21,100000000000000000000,1e-7,-0]");
    check("9223372036854775808", "9223372036854776000");
}

#[test]
fn strings_round_trip_with_gos_escapes() {
    check(r#""a\u003cb\n\u00e9\ud83d\ude00\ud800""#, "\"a\\u003cb\\né😀\u{fffd}\"");
    check("\"\u{2028}\"", r#""\u2028""#);
}

#[test]
fn errors_have_gos_messages() {
    refuse("", "unexpected end of JSON input");
    refuse("{", "unexpected end of JSON input");
    refuse("{a", "invalid character 'a' looking for beginning of object key string");
    refuse(r#"{"a" 1}"#, "invalid character '1' after object key");
    refuse(r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair");
    refuse("[1 2]", "invalid character '2' after array element");
    refuse("tru ", "invalid character ' ' in literal true (expecting 'e')");
    refuse("{} x", "invalid character 'x' after top-level value");
    refuse("\"\n\"", r"invalid character '\n' in string literal");
    refuse("1.x", "invalid character 'x' after decimal point in numeric literal");
    refuse(&"[".repeat(1000), "exceeded max depth");
}

#[test]
fn repeated_keys_are_reported_by_path_and_the_last_wins() {
    let read = json::read(br#"{"a":1,"spec":{"c":[{"n":1,"n":2}]},"a":3}"#).unwrap();
    assert_eq!(read.duplicates, ["spec.c[0].n", "a"]);
    assert_eq!(write::to_string(&read.value), r#"{"a":3,"spec":{"c":[{"n":2}]}}"#);
}

#[test]
fn nested_values_are_set_and_removed_by_path() {
    let mut v = Value::Null;
    v.set_at(&["metadata", "name"], "x");
    assert_eq!(v.str_at(&["metadata", "name"]), Some("x"));
    assert_eq!(v.remove_at(&["metadata", "name"]), Some("x".into()));
    assert_eq!(v.remove_at(&["metadata", "name"]), None);
}

#[test]
fn value_is_at_most_32_bytes() {
    assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
}

#[test]
fn the_memory_of_a_tree_includes_what_it_reserves_and_is_at_most_what_its_text_allows() {
    let list = |item: &str| format!("[{}]", vec![item; 10_000].join(","));
    let text = "x".repeat(100_000);
    for (item, least) in [
        ("0", 10_000 * size_of::<Value>()),
        ("[]", 10_000 * size_of::<Value>()),
        (r#"{"a":0}"#, 10_000 * (2 * size_of::<Value>() + size_of::<crate::Str>())),
        (r#"{"a":0,"b":[1,2]}"#, 10_000 * 100),
        (&format!("{text:?}"), 10_000),
    ] {
        let document = list(item);
        let memory = json::parse(document.as_bytes()).unwrap().memory();
        let most = json::max_memory(document.as_bytes());
        assert!((least..=most).contains(&memory), "{item:.20}: {least} {memory} {most}");
    }
    let yaml = "- 0\n".repeat(10_000);
    assert!(crate::yaml::read(yaml.as_bytes()).unwrap().value.memory() <= json::max_memory(yaml.as_bytes()));
    assert!((100_000..101_000).contains(&Value::from(text.as_str()).memory()));
    assert_eq!(Value::Null.memory(), size_of::<Value>());
}

#[test]
fn extending_a_map_replaces_equal_keys_and_keeps_the_order() {
    let map = |entries: &[(&str, i64)]| -> Map {
        entries.iter().map(|(key, value)| (Str::from(*key), Value::from(*value))).collect()
    };
    let mut extended = map(&[("b", 1), ("d", 1)]);
    extended.extend(map(&[("a", 2), ("b", 2), ("e", 2)]));
    assert_eq!(extended, map(&[("a", 2), ("b", 2), ("d", 1), ("e", 2)]));
    extended.extend([("c".into(), 3.into()), ("c".into(), 4.into())]);
    assert_eq!(extended, map(&[("a", 2), ("b", 2), ("c", 4), ("d", 1), ("e", 2)]));
}
