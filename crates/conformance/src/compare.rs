//! Compares two answers and lists their differences by path.

use serde_json::Value;

use crate::script::Observed;

/// The maximum number of differences that are reported for one step.
const MANY: usize = 12;

/// All differences; empty if the answers are equal.
pub fn differences(expected: &Observed, got: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    if expected.code != got.code {
        found.push(format!("code: expected {}, got {}", expected.code, got.code));
    }
    let names = expected
        .headers
        .keys()
        .chain(got.headers.keys().filter(|name| !expected.headers.contains_key(*name)));
    for name in names {
        let (wanted, had) = (expected.headers.get(name), got.headers.get(name));
        if wanted != had {
            found.push(format!("header {name}: expected {}, got {}", list(wanted), list(had)));
        }
    }
    trees("", Some(&expected.body), Some(&got.body), &mut found);
    if found.len() > MANY {
        let more = found.len() - MANY;
        found.truncate(MANY);
        found.push(format!("and {more} more"));
    }
    found
}

fn list(values: Option<&Vec<String>>) -> String {
    values.map_or("none".to_owned(), |values| format!("{values:?}"))
}

fn trees(path: &str, expected: Option<&Value>, got: Option<&Value>, found: &mut Vec<String>) {
    match (expected, got) {
        (Some(Value::Object(expected)), Some(Value::Object(got))) => {
            let added = got.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(added) {
                trees(&format!("{path}/{key}"), expected.get(key), got.get(key), found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(got))) => {
            for at in 0..expected.len().max(got.len()) {
                trees(&format!("{path}/{at}"), expected.get(at), got.get(at), found);
            }
        }
        (expected, got) if expected == got => {}
        (expected, got) => found.push(format!("{path}: expected {}, got {}", shown(expected), shown(got))),
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or("nothing".to_owned(), Value::to_string);
    if text.chars().count() > 400 { text.chars().take(400).chain("…".chars()).collect() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;
    use crate::script::Observed;

    #[test]
    fn differences_are_reported_by_json_path_and_none_for_equal_answers() {
        let expected = Observed { code: 200, body: json!({"a": [1, 2], "b": "x"}), ..Observed::default() };
        assert!(differences(&expected, &expected).is_empty());
        let got = Observed { code: 201, body: json!({"a": [1], "b": "x", "c": null}), ..Observed::default() };
        assert_eq!(
            differences(&expected, &got),
            [
                "code: expected 200, got 201",
                "/a/1: expected 2, got nothing",
                "/c: expected nothing, got null"
            ]
        );
    }
}
