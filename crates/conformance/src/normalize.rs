//! Replaces values that differ from run to run by a word for their kind: `<uid>`, `<now>`, `<rv>`, `<ip>`, `<age>`, …

use serde_json::Value;

/// Words in messages that are followed by a resource version.
const BEFORE_REVISIONS: [&str; 5] = [
    "ResourceVersion in object meta: ",
    "ResourceVersion in record (",
    "current: ",
    "too old resource version: ",
    "Too large resource version: ",
];

/// The media types of protobuf in error messages.
const PROTOBUF: &str = ", application/vnd.kubernetes.protobuf";
const PROTOBUF_WATCH: &str = ", application/vnd.kubernetes.protobuf;stream=watch";

/// Table columns with an age.
const AGES: [&str; 5] = ["Age", "Last Seen", "First Seen", "Duration", "Last Schedule"];

/// Normalizes a whole answer. `names` are texts of this run with the variable that each came from.
pub fn normalize(value: &mut Value, names: &[(String, String)]) {
    if value.get("kind").and_then(Value::as_str) == Some("Table") {
        columns_and_ages(value);
    }
    without_custom_groups(value);
    match value {
        Value::Object(object) => {
            if let Some(Value::Array(entries)) = object.get_mut("managedFields") {
                entries.sort_by_cached_key(manager);
            }
            for (key, value) in object.iter_mut() {
                named(key, value);
                normalize(value, names);
            }
            let renamed: Vec<_> = object.keys().filter(|key| text(key, names) != **key).cloned().collect();
            for key in renamed {
                if let Some(value) = object.remove(&key) {
                    object.insert(text(&key, names), value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| normalize(value, names)),
        Value::String(own) => *own = text(own, names),
        _ => {}
    }
}

/// Sorts managers by name: their recorded order depends on the second of their last change, which differs from run to run.
fn manager(entry: &Value) -> Vec<String> {
    ["operation", "manager", "apiVersion", "subresource"]
        .map(|field| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned())
        .to_vec()
}

/// Removes the groups of other scripts from documents that list all groups.
fn without_custom_groups(value: &mut Value) {
    const CUSTOM: &str = ".example.com";
    let is_custom = |group: &Value, pointer: &str| {
        group.pointer(pointer).and_then(Value::as_str).is_some_and(|name| name.ends_with(CUSTOM))
    };
    let list = match value.get("kind").and_then(Value::as_str) {
        Some("APIGroupList") => Some(("/groups", "/name")),
        Some("APIGroupDiscoveryList") => Some(("/items", "/metadata/name")),
        _ => None,
    };
    if let Some((list, name)) = list
        && let Some(groups) = value.pointer_mut(list).and_then(Value::as_array_mut)
    {
        groups.retain(|group| !is_custom(group, name));
    }
    if let Some(Value::Object(paths)) = value.get_mut("paths") {
        paths.retain(|path, _| !path.contains(CUSTOM));
    }
    if let Some(Value::Array(paths)) = value.get_mut("paths") {
        paths.retain(|path| !path.as_str().is_some_and(|path| path.contains(CUSTOM)));
    }
}

/// Replaces the values of fields that are known by their name.
fn named(key: &str, value: &mut Value) {
    let word = match (key, &*value) {
        ("resourceVersion", Value::String(text)) if !text.is_empty() && text != "0" => "<rv>",
        ("continue", Value::String(text)) if !text.is_empty() => "<continue>",
        ("nodePort" | "healthCheckNodePort", Value::Number(number)) if number.as_u64() >= Some(30_000) => {
            "<port>"
        }
        _ => return,
    };
    *value = Value::from(word);
}

/// Removes the descriptions of table columns, and replaces the ages in its rows.
fn columns_and_ages(table: &mut Value) {
    let columns: Vec<bool> = table
        .get("columnDefinitions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|column| {
            let says = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
            AGES.contains(&says("name")) || says("type") == "date"
        })
        .collect();
    for column in table.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(column) = column.as_object_mut() {
            column.remove("description");
        }
    }
    // Only the first event of a watch has column definitions.
    let unnamed = columns.is_empty();
    for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        let cells = row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten();
        for (at, cell) in cells.enumerate() {
            let named = columns.get(at).copied().unwrap_or_default();
            let Some(text) = cell.as_str() else { continue };
            let seconds = text.strip_suffix('s').is_some_and(|digits| digits.parse::<u32>().is_ok());
            if named && is_age(text) || unnamed && seconds {
                *cell = Value::from("<age>");
            }
        }
    }
}

/// Whether a cell is an age such as `5s` or `3d`; a date column may contain a timestamp instead.
fn is_age(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
}

/// Normalizes a text: texts of this run, uids, times of this run, resource versions, hashes.
pub fn text(own: &str, names: &[(String, String)]) -> String {
    // Portcullis does not serve protobuf (README.md), so errors do not offer it.
    let mut whole = own.replace(PROTOBUF_WATCH, "").replace(PROTOBUF, "");
    for (value, name) in names {
        whole = whole.replace(value, &format!("{{{name}}}"));
    }
    for marker in BEFORE_REVISIONS {
        whole = after(&whole, marker, "<rv>", |c| c.is_ascii_digit());
    }
    if whole.contains("<rv> (") {
        whole = after(&whole, "<rv> (", "<rv>", |c| c.is_ascii_digit());
    }
    whole = addresses(&whole);
    whole = after(&whole, "hash=", "<hash>", |c| c.is_ascii_hexdigit());
    let mut out = String::with_capacity(whole.len());
    let mut rest = whole.as_str();
    while let Some(first) = rest.chars().next() {
        let (word, length) = if let Some(length) = uid(rest) {
            ("<uid>", length)
        } else if let Some(length) = time(rest) {
            ("<now>", length)
        } else {
            out.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        };
        out.push_str(word);
        rest = rest.get(length..).unwrap_or_default();
    }
    out
}

/// Replaces the characters after each `marker` for which `belongs` is true.
fn after(whole: &str, marker: &str, word: &str, belongs: fn(char) -> bool) -> String {
    let mut parts = whole.split(marker);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(belongs);
        out.push_str(marker);
        out.push_str(if rest.len() < part.len() { word } else { "" });
        out.push_str(rest);
    }
    out
}

/// Replaces addresses of the service cluster IP range.
fn addresses(whole: &str) -> String {
    let mut parts = whole.split("10.0.0.");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        // A CIDR such as 10.0.0.0/24 is kept.
        if rest.len() == part.len() || rest.starts_with('/') {
            out.push_str("10.0.0.");
            out.push_str(part);
        } else {
            out.push_str("<ip>");
            out.push_str(rest);
        }
    }
    out
}

/// The length of a uid at the start of `rest`.
fn uid(rest: &str) -> Option<usize> {
    matches(rest, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", |pattern, c| match pattern {
        'x' => c.is_ascii_hexdigit() && !c.is_ascii_uppercase(),
        other => other == c,
    })
}

/// The length of a time of this run at the start of `rest`. A time before 2026 is kept, so that scripts can use fixed times.
fn time(rest: &str) -> Option<usize> {
    let digits = |pattern: char, c: char| if pattern == 'd' { c.is_ascii_digit() } else { pattern == c };
    let length = matches(rest, "20dd-dd-ddTdd:dd:dd", digits)?;
    if rest.get(..4)? < "2026" {
        return None;
    }
    let tail = rest.get(length..)?;
    let fraction = match tail.strip_prefix('.') {
        Some(digits) => 1 + digits.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len(),
        None => 0,
    };
    tail.get(fraction..)?.starts_with('Z').then_some(length + fraction + 1)
}

fn matches(rest: &str, pattern: &str, fits: impl Fn(char, char) -> bool) -> Option<usize> {
    let mut chars = rest.chars();
    for wanted in pattern.chars() {
        if !fits(wanted, chars.next()?) {
            return None;
        }
    }
    Some(pattern.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{normalize, text};

    #[test]
    fn server_generated_values_are_replaced_and_other_values_stay() {
        let names = [("conf-12ab34".to_owned(), "ns".to_owned())];
        let mut object = json!({
            "metadata": {
                "uid": "0b5f1e0e-7a52-4b7c-9d0e-2f9f3c1f7a11", "resourceVersion": "1234", "namespace": "conf-12ab34",
                "creationTimestamp": "2026-11-15T09:25:36Z", "generation": 1,
                "managedFields": [{"manager": "b", "time": "2026-11-15T09:25:36Z"}, {"manager": "a"}],
            },
            "spec": {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "nodePort": 31000, "start": "2020-01-01T00:00:00Z"},
        });
        normalize(&mut object, &names);
        assert_eq!(
            object,
            json!({
                "metadata": {
                    "uid": "<uid>", "resourceVersion": "<rv>", "namespace": "{ns}", "creationTimestamp": "<now>",
                    "generation": 1, "managedFields": [{"manager": "a"}, {"manager": "b", "time": "<now>"}],
                },
                "spec": {"clusterIP": "<ip>", "clusterIPs": ["<ip>"], "nodePort": "<port>", "start": "2020-01-01T00:00:00Z"},
            })
        );
    }

    #[test]
    fn revisions_in_messages_are_replaced_and_other_numbers_stay() {
        assert_eq!(text("too old resource version: 5 (17)", &[]), "too old resource version: <rv> (<rv>)");
        assert_eq!(
            text("Too large resource version: 9, current: 17", &[]),
            "Too large resource version: <rv>, current: <rv>"
        );
        assert_eq!(text("must be between 1 and 65535", &[]), "must be between 1 and 65535");
    }

    #[test]
    fn ages_in_tables_are_replaced() {
        let mut table = json!({"kind": "Table",
                               "columnDefinitions": [{"name": "Name"}, {"name": "Age"}, {"name": "When", "type": "date"}],
                               "rows": [{"cells": ["5s", "5s", "6y320d"]}, {"cells": ["a", "<unknown>", "2020-01-01T00:00:00Z"]}]});
        normalize(&mut table, &[]);
        assert_eq!(
            table["rows"],
            json!([{"cells": ["5s", "<age>", "<age>"]}, {"cells": ["a", "<unknown>", "2020-01-01T00:00:00Z"]}])
        );
    }
}
