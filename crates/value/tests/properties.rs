//! Properties for all inputs: readers never panic, and written values are read back unchanged.

use proptest::prelude::*;
use value::{Path, Value, json, write, yaml};

/// Generates strings, many of which are hard to quote.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z0-9./:-]{0,12}",
        2 => "[ \\-?:,\\[\\]{}#&*!|>'\"%@`a\n\t\r~.0-9_eE+xob]{0,12}",
        1 => "( ?[a-z]{1,9}){0,30}",
        1 => "([ a]{0,3}\n){0,4}[ a]{0,3}",
        1 => any::<String>(),
        1 => prop::sample::select(vec![
            "", "y", "No", "null", "~", "0644", "0x1f", "1e3", "-.inf", "<<", "2001-01-01", "1:30", "---", "...", "- a",
            "\u{feff}a b", "\u{85}", "\u{2028}x", "\u{7f}", "\u{1f600}", "\u{fffe}", "\0", "a: b", "a #b", "\\u0000",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Generates trees as a JSON reader produces them.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        2 => (-1000_i64..1000).prop_map(Value::from),
        2 => any::<f64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::UInt),
        6 => text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..6).prop_map(Value::map),
        ]
    })
    .prop_map(|value| json::parse(&write::to_vec(&value)).unwrap_or_default())
}

/// Generates text that resembles YAML or JSON.
fn markup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b: ",
        "c:",
        "- ",
        "-",
        "\n",
        "\n",
        "\n  ",
        "\n    ",
        " ",
        "\t",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "? ",
        "\"",
        "'",
        "|",
        ">",
        "|2-\n",
        "&x ",
        "*x",
        "<<: ",
        "!!int ",
        "!!binary ",
        "!",
        "#",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "%TAG",
        "\\",
        "\\u12",
        "\\n",
        "0",
        "-1",
        "1e5",
        ".nan",
        "true",
        "null",
        "\u{feff}",
        "\u{2028}",
        "\r\n",
        "é",
        "\u{1f600}",
        "\\ud83d",
        "\0",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_json_round_trips(value in tree()) {
        let bytes = write::to_vec(&value);
        let read = json::read(&bytes);
        prop_assert!(read.is_ok(), "{:?}", read);
        let read = read.unwrap_or_default();
        prop_assert_eq!(&read.value, &value);
        prop_assert_eq!(write::to_vec(&read.value), bytes);
        prop_assert!(read.duplicates.is_empty());
    }

    #[test]
    fn pretty_json_round_trips(value in tree()) {
        let mut bytes = Vec::new();
        write::pretty(&mut bytes, &value);
        prop_assert_eq!(json::parse(&bytes), Ok(value));
    }

    #[test]
    fn written_yaml_round_trips(value in tree()) {
        let text = yaml::write(&value);
        prop_assert_eq!(yaml::read(text.as_bytes()).map(|read| read.value), Ok(value), "{}", text);
    }

    #[test]
    fn every_field_of_a_document_has_a_position(value in tree()) {
        let documents = yaml::documents(yaml::write(&value).as_bytes());
        if let Ok([document]) = documents.as_deref() && let Value::Map(map) = &document.value {
            for key in map.keys() {
                prop_assert!(document.spans.locate(&Path::root().field(key.clone())).is_some(), "{}", key);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = json::read(&bytes);
        let _ = yaml::body(&bytes);
        let _ = yaml::documents(&bytes);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in markup()) {
        let _ = json::read(text.as_bytes());
        let _ = yaml::body(text.as_bytes());
        let _ = yaml::documents(text.as_bytes());
    }

    #[test]
    fn documents_and_bodies_are_read_alike(text in markup()) {
        let body = yaml::body(text.as_bytes()).map(|body| body.value);
        if !text.trim_ascii_start().starts_with('{') {
            prop_assert_eq!(yaml::document(text.as_bytes()).map(|document| document.value), body);
        }
    }
}
