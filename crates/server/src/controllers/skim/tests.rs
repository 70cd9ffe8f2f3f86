use value::{json, write};

use super::{contains, member};

fn metadata(text: &str) -> Option<&str> {
    member(text.as_bytes(), b"\"metadata\"").map(|bytes| std::str::from_utf8(bytes).unwrap())
}

#[test]
fn metadata_is_found_at_any_position_in_the_object() {
    for (text, expected) in [
        (r#"{"metadata":{"a":{"b":[1,"}"]}},"z":1}"#, Some(r#"{"a":{"b":[1,"}"]}}"#)),
        (r#"{"kind":"K","data":{"metadata":"no","x":"\"metadata\":{"},"metadata":{}}"#, Some("{}")),
        (r#"{"n":-1.5e3,"l":[[],{}],"t":true,"metadata":{"name":"\\"}}"#, Some(r#"{"name":"\\"}"#)),
        (r#"{"metadata":null}"#, Some("null")),
        (r#"{"metadata":"text","z":{}}"#, Some(r#""text""#)),
    ] {
        assert_eq!(metadata(text), expected, "{text}");
    }
}

#[test]
fn missing_metadata_and_malformed_json_yield_no_metadata() {
    for text in
        ["", "{", "{}", r#"{"a":1}"#, r#"{"metadata"#, r#"{"metadata":{"#, r#"{"metadata":"\"#, "[]", "null"]
    {
        assert_eq!(metadata(text), None, "{text}");
    }
}

#[test]
fn fuzzed_objects_have_the_metadata_that_the_full_reader_finds() {
    let seeds = [
        r#"{"metadata":{"name":"n","ownerReferences":[{"uid":"u"}]},"spec":{"a":[1,{"metadata":{}}]}}"#,
        r#"{"data":{"x":"\"metadata\":{"},"kind":"K","metadata":{"annotations":{"a":"}\\"}},"n":-1.5e3}"#,
    ];
    let tokens = [
        "{",
        "}",
        "[",
        "]",
        "\"metadata\":",
        "\"metadata\":{}",
        "\"a\":",
        "\\\"",
        "\"",
        "\"metad\\u0061ta\":1,",
    ];
    fuzz::run(&fuzz::Corpus::new(seeds, &tokens).inputs(), |input| {
        let _ = member(input, b"\"metadata\"");
        let Ok(object) = json::parse(input) else { return Ok(()) };
        let stored = write::to_vec(&object);
        let skimmed = member(&stored, b"\"metadata\"").and_then(|bytes| json::parse_wrapped(bytes).ok());
        // Compare serialized values: `-1.5e3` is parsed as a float and written as an integer.
        let [found, expected] =
            [skimmed.as_ref(), object.get("metadata")].map(|value| value.map(write::to_vec));
        if found == expected { Ok(()) } else { Err(format!("found {skimmed:?}")) }
    });
}

#[test]
fn contains_finds_a_substring_only_if_present() {
    assert!(contains(b"xab", b"ab"));
    assert!(!contains(b"a", b"ab"));
}
