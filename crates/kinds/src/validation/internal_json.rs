//! Prints a part of an object as the JSON of kube-apiserver's internal types, which its errors quote.
//!
//! Every field appears in declaration order under its Go name, zero values included. `data/internal-types.txt` and
//! `data/internal-kinds.txt` contain those names; they are parsed when the first such error is written.

use std::{collections::HashMap, sync::LazyLock};

use value::{Value, write};

use api::validation::fields::Read;

struct InternalField {
    name: &'static str,
    leaves_out_empty: bool,
    path: Vec<&'static str>,
    kind: &'static str,
}

/// Types of the kind that the tests of the resource table add.
const FIXTURE: &str = if cfg!(test) { include_str!("../../data/fixture-internal-kinds.txt") } else { "" };

static TYPES: LazyLock<HashMap<&'static str, Vec<InternalField>>> = LazyLock::new(|| {
    let mut types: HashMap<&str, Vec<InternalField>> = HashMap::new();
    let mut current = "";
    let kinds = include_str!("../../data/internal-kinds.txt").lines().chain(FIXTURE.lines());
    for line in include_str!("../../data/internal-types.txt").lines().chain(kinds) {
        if line.starts_with('#') {
            continue;
        }
        let Some(field) = line.strip_prefix(' ') else {
            current = line;
            continue;
        };
        let mut words = field.split(' ');
        if let (Some(name), Some(path), Some(kind)) = (words.next(), words.next(), words.next()) {
            types.entry(current).or_default().push(InternalField {
                name: name.trim_end_matches('?'),
                leaves_out_empty: name.ends_with('?'),
                path: path.split('.').collect(),
                kind,
            });
        }
    }
    types
});

#[derive(Clone, Copy)]
enum JsonStyle {
    Compact,
    /// One field per line, indented by one space per level.
    Indented,
}

/// Prints `value` as the internal type `kind` on one line.
pub(crate) fn compact(kind: &str, value: Option<&Value>) -> String {
    let mut out = String::new();
    print(kind, value, JsonStyle::Compact, 0, &mut out);
    out
}

/// Prints `value` as the internal type `kind`, indented by one space per level.
pub(super) fn indented(kind: &str, value: Option<&Value>) -> String {
    let mut out = String::new();
    print(kind, value, JsonStyle::Indented, 0, &mut out);
    out
}

fn print(kind: &str, value: Option<&Value>, layout: JsonStyle, depth: usize, out: &mut String) {
    let value = value.filter(|value| !value.is_null());
    if let Some(inner) = kind.strip_prefix('*') {
        match value {
            None => out.push_str("null"),
            some => print(inner, some, layout, depth, out),
        }
        return;
    }
    if let Some(inner) = kind.strip_prefix("[]") {
        let Some(list) = value.and_then(Value::as_list) else {
            out.push_str("null");
            return;
        };
        let items = list.iter().map(|item| (None, inner, Some(item)));
        return bracketed('[', ']', items, layout, depth, out);
    }
    match kind {
        "text" => out.push_str(&write::to_string(&value.cloned().unwrap_or_else(|| "".into()))),
        "number" | "any" => out.push_str(&write::to_string(&value.cloned().unwrap_or_else(|| 0.into()))),
        "flag" => out.push_str(&write::to_string(&value.cloned().unwrap_or_else(|| false.into()))),
        "quantity" => out.push_str(&write::to_string(&value.cloned().unwrap_or_else(|| "0".into()))),
        "time" => out.push_str(&write::to_string(value.unwrap_or(&Value::Null))),
        "map" => match value.and_then(Value::as_map) {
            None => out.push_str("null"),
            Some(map) => {
                let entries = map.iter().map(|(key, value)| (Some(key.as_str()), "any", Some(value)));
                bracketed('{', '}', entries, layout, depth, out);
            }
        },
        name => {
            let fields = TYPES.get(name).map(Vec::as_slice).unwrap_or_default();
            let present = fields.iter().filter_map(|field| {
                let inner =
                    value.and_then(|value| field.path.iter().try_fold(value, |value, step| value.part(step)));
                // A pointer to an empty struct is not left out.
                let is_struct = field.kind.starts_with('*');
                let empty = inner.is_none_or(|inner| {
                    !is_struct && inner.as_map().is_some_and(value::Map::is_empty)
                        || inner.as_list().is_some_and(<[Value]>::is_empty)
                        || inner.as_str().is_some_and(str::is_empty)
                });
                (!(field.leaves_out_empty && empty)).then_some((Some(field.name), field.kind, inner))
            });
            bracketed('{', '}', present, layout, depth, out);
        }
    }
}

fn bracketed<'a>(
    open: char,
    close: char,
    items: impl Iterator<Item = (Option<&'a str>, &'a str, Option<&'a Value>)>,
    layout: JsonStyle,
    depth: usize,
    out: &mut String,
) {
    let line = |depth: usize, out: &mut String| {
        if matches!(layout, JsonStyle::Indented) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth));
        }
    };
    out.push(open);
    let mut any = false;
    for (key, kind, value) in items {
        if any {
            out.push(',');
        }
        any = true;
        line(depth + 1, out);
        if let Some(key) = key {
            out.push_str(&write::to_string(&key.into()));
            out.push(':');
            if matches!(layout, JsonStyle::Indented) {
                out.push(' ');
            }
        }
        print(kind, value, layout, depth + 1, out);
    }
    if any {
        line(depth, out);
    }
    out.push(close);
}
