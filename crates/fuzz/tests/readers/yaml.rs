//! The YAML reader and writer. JSON documents are YAML documents.

use fuzz::Corpus;
use value::{Value, json, write, yaml};

use crate::{json as json_corpus, seeds};

const TOKENS: &[&str] = &[
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "? ",
    ": ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "&a [",
    "*a, *a]",
    "<<: *a\n",
    "!!str ",
    "!!int ",
    "!!binary ",
    "!!map ",
    "!",
    "!<x>",
    "|\n",
    "|2-\n",
    ">+\n",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "%TAG ! x\n",
    "~",
    "yes",
    "off",
    "0o17",
    "0b1",
    "1_000",
    "1:30",
    ".inf",
    "-.nan",
    "2001-01-01",
    "\u{85}",
    "\\x41",
    "\\N",
    "a: &b {c: *b}\n",
    "apiVersion: v1\n",
];

/// Aliases repeat their anchor; the reader limits how much a document grows by them.
const MOST_GROWTH: usize = 1024 * 1024;

fn corpus() -> Corpus {
    let own = [
        "a: 1\n",
        "- a\n- b: [c, {d: e}]\n",
        "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n",
        "a: |\n  text\n  more\nb: >-\n  folded\n  text\n",
        "? complex\n: value\n",
        "'quoted': \"esc\\taped\"\n",
        "---\na: 1\n---\nb: 2\n...\n",
        "a: !!binary aGVsbG8=\nb: !!str 1\n",
        "a: &l [x, x]\nb: &m [*l, *l]\nc: [*m, *m]\n",
    ];
    let bodies: Vec<String> = seeds::bodies().iter().map(yaml::write).collect();
    Corpus::new(own.iter().map(|text| (*text).to_owned()).chain(bodies), TOKENS)
}

#[test]
fn yaml_survives_a_round_trip() {
    fuzz::run(&corpus().inputs(), |input| {
        let _ = yaml::documents(input);
        let Ok(body) = yaml::body(input) else { return Ok(()) };
        let as_json = write::to_vec(&body.value);
        if as_json.len() > input.len() * 32 + MOST_GROWTH {
            return Err(format!("{} bytes became {}", input.len(), as_json.len()));
        }
        if body.value.depth() > json::MAX_DEPTH {
            return Err(format!("{} levels deep", body.value.depth()));
        }
        if !input.trim_ascii_start().starts_with(b"{") {
            let document = yaml::document(input).map_err(|error| format!("as a file: {error}"))?;
            if document.value != body.value || document.duplicates != body.duplicates {
                return Err("a file with it is read in another way".to_owned());
            }
        }
        // Floats that JSON has no form for are written as null.
        let value = json::parse(&as_json).map_err(|error| format!("its JSON cannot be read: {error}"))?;
        let written = yaml::write(&value);
        let again = yaml::read(written.as_bytes()).map_err(|error| format!("{error}: {written}"))?;
        if again.value != value {
            return Err(format!("read again as {}: {written}", write::to_string(&again.value)));
        }
        Ok(())
    });
}

/// Whether the JSON text of this tree has the same meaning in YAML, which has other escapes and shorter keys.
fn is_plain(value: &Value) -> bool {
    let plain = |text: &str| {
        text.len() <= 1000 && text.chars().all(|c| (' '..='~').contains(&c) && c != '/' && c != '\\')
    };
    match value {
        Value::Map(map) => map.iter().all(|(key, value)| plain(key) && key != "<<" && is_plain(value)),
        Value::List(list) => list.iter().all(is_plain),
        Value::String(text) => plain(text),
        Value::Float(_) => false,
        _ => true,
    }
}

#[test]
fn json_is_read_as_yaml_too() {
    fuzz::run(&json_corpus::corpus().inputs(), |input| {
        let Ok(expected) = json::read(input) else { return Ok(()) };
        // A key and its colon are on one line in YAML, and a tab does not indent.
        let differs = input.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b'\\'));
        if !is_plain(&expected.value) || !expected.duplicates.is_empty() || differs {
            return Ok(());
        }
        match yaml::body(input) {
            Ok(body) if body.value == expected.value => Ok(()),
            Ok(body) => Err(format!("read as {}", write::to_string(&body.value))),
            Err(error) => Err(format!("refused: {error}")),
        }
    });
}
