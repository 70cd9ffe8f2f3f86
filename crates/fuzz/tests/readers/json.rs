//! The JSON reader and writer, compared with serde_json.

use fuzz::Corpus;
use serde_json::Value as Other;
use value::{Value, json, write};

use crate::seeds;

pub(crate) const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "{\"a\":",
    "}",
    "\"a\"",
    "\"a\":1,",
    "\"a\":1,\"a\":2,",
    "false",
    "\\u00e9",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\x",
    "//",
    "NaN",
    "-",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e5",
    "1e21",
    "5e-324",
    "1.7976931348623157e308",
    "\u{7f}",
    "\u{1}",
    "\"apiVersion\":\"v1\"",
    "\"kind\":\"Pod\"",
    "\"metadata\":",
];

pub(crate) fn corpus() -> Corpus {
    Corpus::new(seeds::bodies().iter().map(write::to_vec), TOKENS)
}

/// Replaces `-0` by `0`: it is an integer here, as in Go, and a float in serde_json.
fn with_one_zero(value: Value) -> Value {
    match value {
        Value::Float(0.0) => Value::from(0),
        Value::List(list) => Value::list(list.into_iter().map(with_one_zero)),
        Value::Map(map) => {
            Value::map(map.iter().map(|(key, value)| (key.clone(), with_one_zero(value.clone()))))
        }
        other => other,
    }
}

/// Converts a tree of serde_json. As in Go, integers that do not fit into `i64` become floats.
fn converted(other: &Other) -> Value {
    match other {
        Other::Null => Value::Null,
        Other::Bool(flag) => Value::from(*flag),
        Other::Number(number) => match number.as_i64() {
            Some(int) => Value::from(int),
            None => Value::from(number.as_f64().unwrap_or_default()),
        },
        Other::String(text) => Value::from(text.as_str()),
        Other::Array(list) => Value::list(list.iter().map(converted)),
        Other::Object(map) => Value::map(map.iter().map(|(key, value)| (key.as_str(), converted(value)))),
    }
}

#[test]
fn json_is_read_as_serde_json_reads_it() {
    fuzz::run(&corpus().inputs(), |input| {
        let ours = json::read(input);
        let theirs = serde_json::from_slice::<Other>(input);
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => {
                // The bytes decide: `1.0` and `1` are the same number in JSON and different ones in a tree.
                let theirs = write::to_vec(&with_one_zero(converted(theirs)));
                if write::to_vec(&with_one_zero(ours.value.clone())) != theirs {
                    return Err(format!("read as {}", String::from_utf8_lossy(&write::to_vec(&ours.value))));
                }
            }
            (Err(error), Ok(_)) => return Err(format!("refused: {error}")),
            // Like Go, this reader accepts invalid UTF-8 and lone surrogates, and replaces them.
            (Ok(_), Err(error)) => {
                let lenient =
                    std::str::from_utf8(input).is_err() || input.windows(2).any(|two| two == b"\\u");
                if !lenient {
                    return Err(format!("accepted, but {error}"));
                }
            }
            (Err(_), Err(_)) => {}
        }
        Ok(())
    });
}

#[test]
fn json_survives_a_round_trip() {
    fuzz::run(&corpus().inputs(), |input| {
        let Ok(read) = json::read(input) else { return Ok(()) };
        let written = write::to_vec(&read.value);
        // One byte becomes an escape of six bytes at most, and a number all of its digits.
        if written.len() > input.len() * 32 + 32 {
            return Err(format!("{} bytes became {}", input.len(), written.len()));
        }
        let again =
            json::read(&written).map_err(|error| format!("what was written cannot be read: {error}"))?;
        // A float without a fraction is written as an integer.
        let same = |value: &Value| write::to_vec(value) == written;
        if !same(&again.value) || !again.duplicates.is_empty() {
            return Err(format!("read again as {}", write::to_string(&again.value)));
        }
        let mut pretty = Vec::new();
        write::pretty(&mut pretty, &read.value);
        if !json::parse(&pretty).is_ok_and(|value| same(&value)) {
            return Err("the indented form is another tree".to_owned());
        }
        if !json::parse(&catalog::encode::indent(&written)).is_ok_and(|value| same(&value)) {
            return Err("the form for people is another tree".to_owned());
        }
        let wrapped = json::parse_wrapped(input).map_err(|error| format!("refused when wrapped: {error}"))?;
        if wrapped != read.value {
            return Err("the wrapped form is another tree".to_owned());
        }
        let duplicates: Vec<&str> = read.duplicates.iter().map(String::as_str).collect();
        let offsets = json::offsets(input, &duplicates);
        if offsets.iter().any(|offset| *offset != usize::MAX && *offset >= input.len()) {
            return Err(format!("repeated keys at {offsets:?}"));
        }
        Ok(())
    });
}
