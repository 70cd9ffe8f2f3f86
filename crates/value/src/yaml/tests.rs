use std::fmt::Write as _;

use super::{body, document, documents, read, write};
use crate::{Path, Value, json, write as canonical};

/// Splits a table of test cases into its blocks.
fn blocks(table: &str) -> impl Iterator<Item = &str> {
    table.strip_suffix('\n').unwrap_or(table).split("\n====\n").skip(1)
}

fn in_one_line(message: &str) -> String {
    message.replace('\\', "\\\\").replace('\n', "\\n")
}

/// The result of reading a document, in the notation of the table.
fn outcome(input: &str) -> String {
    match body(input.as_bytes()) {
        Err(error) => format!("=> ! {}", in_one_line(&error.message)),
        Ok(body) => {
            let mut out = format!("=> {}", canonical::to_string(&body.value));
            if let Some(strict) = body.strict {
                let _ = write!(out, "\n=> !! {}", in_one_line(&strict));
            }
            out
        }
    }
}

#[track_caller]
fn check(input: &str, expected: &str) {
    assert_eq!(outcome(input), format!("=> {expected}"), "{input}");
}

#[test]
fn documents_are_read_as_kubernetes_reads_them() {
    let long = "k".repeat(1030);
    let mut wrong = String::new();
    for block in blocks(include_str!("tests/documents.txt")) {
        let block = block.replace("{k*1030}", &long);
        let (input, expected) = block.split_once("\n=> ").unwrap();
        let found = outcome(&format!("{input}\n"));
        if found != format!("=> {expected}") {
            let _ = writeln!(wrong, "{input}\nexpected {expected}\nfound {found}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn scalars_are_resolved_as_in_kubernetes() {
    let mut wrong = String::new();
    for row in include_str!("tests/scalars.txt").lines().skip(2) {
        let [scalar, value, key] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        // Unsigned integers become floats when they pass through JSON.
        let value =
            json::parse(value.as_bytes()).map_or(value.to_owned(), |value| canonical::to_string(&value));
        let cases =
            [(format!("a: {scalar}"), value.as_str(), r#"{"a":?}"#), (format!("{scalar}: 1"), key, "{?:1}")];
        for (input, expected, document) in cases {
            let expected = match expected.strip_prefix("! ") {
                Some(message) => format!("=> ! {message}"),
                None => format!("=> {}", document.replace('?', expected)),
            };
            if outcome(&input) != expected {
                let _ = writeln!(wrong, "{input}\nexpected {expected}\nfound {}\n", outcome(&input));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn values_are_written_as_kubernetes_writes_them() {
    let mut wrong = String::new();
    for block in blocks(include_str!("tests/written.txt")) {
        let (input, expected) = block.split_once("\n=>\n").unwrap();
        let found = write(&json::parse(input.as_bytes()).unwrap());
        if found != format!("{expected}\n") {
            let _ = writeln!(wrong, "{input}\nexpected\n{expected}\nfound\n{found}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_key_that_would_merge_is_written_in_quotes() {
    assert_eq!(write(&Value::map([("<<", 1)])), "\"<<\": 1\n");
}

#[test]
fn line_breaks_of_all_systems_and_byte_order_marks_are_read() {
    check("a: 1\r\nb: |\r\n  x\r\n  y\r\nc: 2\r", r#"{"a":1,"b":"x\ny\n","c":2}"#);
    check("\u{feff}a: 1", r#"{"a":1}"#);
    let utf16: Vec<u8> = "\u{feff}a: é".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&utf16).unwrap().value, Value::map([("a", "é")]));
    check("", "null");
    check("# nothing\n", "null");
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    for (bytes, message) in [
        (&b"a: \xff"[..], "yaml: invalid leading UTF-8 octet"),
        (b"a: \xc3", "yaml: incomplete UTF-8 octet sequence"),
        (b"a: \xc3x", "yaml: invalid trailing UTF-8 octet"),
        (b"a: \xc0\x80", "yaml: invalid length of a UTF-8 sequence"),
        (b"a: \xed\xa0\x80", "yaml: invalid Unicode character"),
        (b"a: \0", "yaml: control characters are not allowed"),
        (b"a: \x7f", "yaml: control characters are not allowed"),
    ] {
        assert_eq!(read(bytes).unwrap_err().message, message);
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |open: &str, close: &str, depth| format!("{}{}", open.repeat(depth), close.repeat(depth));
    assert!(read(nested("[", "]", 128).as_bytes()).is_ok());
    assert_eq!(outcome(&nested("[", "]", 129)), "=> ! yaml: exceeded max depth of 128");
    assert_eq!(outcome(&nested("- ", "", 20_000)), "=> ! yaml: exceeded max depth of 128");
    let deep: Vec<String> = (0..200).map(|i| format!("{}a:", " ".repeat(i))).collect();
    assert_eq!(outcome(&deep.join("\n")), "=> ! yaml: exceeded max depth of 128");
}

#[test]
fn aliases_cannot_expand_a_document_without_bound() {
    let mut laughs = "a: &a [l,l,l,l,l,l,l,l,l]\n".to_owned();
    for (outer, inner) in ["ba", "cb", "dc", "ed", "fe", "gf", "hg", "ih"].map(|pair| pair.split_at(1)) {
        let _ = writeln!(laughs, "{outer}: &{outer} [{}]", format!("*{inner},").repeat(9));
    }
    assert_eq!(outcome(&laughs), "=> ! yaml: document contains excessive aliasing");

    let big = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(500));
    assert_eq!(outcome(&big), "=> ! yaml: document contains excessive aliasing");

    let few = format!("a: &a {}\nb: [{}]\n", "x".repeat(100), "*a,".repeat(500));
    assert!(read(few.as_bytes()).is_ok());
}

#[test]
fn repeated_keys_are_reported_by_path() {
    let body = body(b"a: 1\nspec:\n  c:\n  - k: 1\n    k: 2\n  - {m: 1, m: 2}\na: 3\n").unwrap();
    assert_eq!(body.duplicates, ["spec.c[0].k", "spec.c[1].m", "a"]);
    assert_eq!(
        body.strict.as_deref(),
        Some(
            "yaml: unmarshal errors:\n  line 5: key \"k\" already set in map\n  line 6: key \"m\" already set in map\n  \
             line 7: key \"a\" already set in map"
        )
    );
}

#[test]
fn yaml_field_positions_are_found() {
    let documents =
        documents(b"# c\n---\na: 1\nspec:\n  l:\n  - x: &q {p: 1}\n    y.z: *q\n---\nb: 2\n").unwrap();
    let [comment, first, second] = documents.as_slice() else { panic!("{documents:?}") };
    assert!(comment.value.is_null());
    assert_eq!((first.line, second.line), (3, 9));
    let position = first.spans.locate(&Path::root().field("spec").field("l").index(0).field("y.z")).unwrap();
    assert_eq!((position.key.to_string(), position.value.to_string()), ("7:5".to_owned(), "7:10".to_owned()));
    assert_eq!(first.spans.locate_text("spec.l[0].y.z.p").unwrap().value.to_string(), "6:15");
    assert_eq!(first.spans.locate_text("spec.l[0][y.z].p").unwrap().value.to_string(), "6:15");
    assert_eq!(first.spans.locate_text("spec.l[1]"), None);
    assert_eq!(first.spans.nearest("spec.l[0].q").value.to_string(), "6:5");
    assert_eq!(second.spans.locate_text("b").unwrap().key.to_string(), "9:1");
}

#[test]
fn fields_that_are_merged_are_located_where_they_are_written() {
    let document = document(b"x: &x {p: 1, q: 2}\nz:\n  <<: *x\n  q: 3\n").unwrap();
    assert_eq!(document.spans.locate_text("z.p").unwrap().key.to_string(), "1:8");
    assert_eq!(document.spans.locate_text("z.q").unwrap().value.to_string(), "4:6");
}

#[test]
fn a_file_that_begins_with_a_brace_is_json() {
    let document = document(b"\n{\n\t\"a\": {\"b\": 1, \"b\": \"\\/\"}\n}\n").unwrap();
    assert_eq!(document.duplicates, ["a.b"]);
    assert_eq!(document.value.str_at(&["a", "b"]), Some("/"));
    assert_eq!(document.strict, None);
    let error = super::document(b"{\n  \"a\": x\n}").unwrap_err();
    assert_eq!(error.message, "invalid character 'x' looking for beginning of value");
    assert_eq!(error.position.to_string(), "2:8");
}

#[test]
fn json_field_positions_are_found() {
    let document = document(b"{\n  \"a\": {\"b\": [1,\n 2]}\n}\n").unwrap();
    assert_eq!(document.spans.locate_text("a.b").unwrap().key.to_string(), "2:9");
    assert_eq!(document.spans.locate_text("a.b[1]").unwrap().value.to_string(), "3:2");
}

#[test]
fn documents_are_separated_as_kubernetes_separates_them() {
    let values = |text: &str| -> Vec<String> {
        documents(text.as_bytes()).unwrap().iter().map(|d| canonical::to_string(&d.value)).collect()
    };
    assert_eq!(values(""), [""; 0]);
    assert_eq!(values(" \n\n"), [""; 0]);
    assert_eq!(values("# comment\n"), ["null"]);
    assert_eq!(values("---\n---\n"), ["null"]);
    assert_eq!(values("---\na: 1\n--- # next\n\n---\nb: 2"), [r#"{"a":1}"#, r#"{"b":2}"#]);
    assert_eq!(values("a: |\n  x\n  ---\nb: 1\n"), [r#"{"a":"x\n---\n","b":1}"#]);
    let error = documents(b"a: 1\n--- x\n").unwrap_err();
    assert_eq!(error.message, "invalid Yaml document separator: x");
    assert_eq!(documents(b"a: 1\n---\nb: 1\n  c: 2\n").unwrap_err().position.to_string(), "4:4");
}
