//! What is wrong, in the words of goyaml, because API clients and operators know them.

use std::fmt::Write as _;

use saphyr_parser::ScanError;

use super::{Error, Position};
use crate::Value;

/// Where in goyaml a message comes from. Its parser counts lines from zero, so that its errors name the line before.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Scanner,
    Parser,
}

/// The parser's messages (how they begin) and goyaml's.
const WORDS: &[(&str, Stage, &str)] =
    &[("mapping values are not allowed", Stage::Scanner, "mapping values are not allowed in this context")];

/// A syntax error.
pub(super) fn syntax(text: &str, error: &ScanError) -> Error {
    let position = Position::from(*error.marker());
    if error.info().contains("found unknown anchor") {
        return unknown_anchor(text, position);
    }
    let (stage, words) = WORDS
        .iter()
        .find(|(begin, ..)| error.info().starts_with(begin))
        .map_or((Stage::Scanner, error.info()), |(_, stage, words)| (*stage, *words));
    let line = match stage {
        Stage::Scanner if position.line > 1 => position.line,
        Stage::Scanner => 0,
        Stage::Parser => position.line - 1,
    };
    let message = if line == 0 { format!("yaml: {words}") } else { format!("yaml: line {line}: {words}") };
    Error::new(message, position)
}

pub(super) fn unknown_anchor(text: &str, position: Position) -> Error {
    Error::new(format!("yaml: unknown anchor '{}' referenced", alias_name(text, position)), position)
}

/// The name of the alias at a position.
pub(super) fn alias_name(text: &str, position: Position) -> String {
    let line = text.split('\n').nth(position.line.saturating_sub(1)).unwrap_or_default();
    line.chars()
        .skip(position.column.saturating_sub(1))
        .skip_while(|c| *c == '*')
        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .collect()
}

/// Refuses a `%YAML` directive of another version than 1.1.
pub(super) fn check_version(text: &str) -> Result<(), Error> {
    for (index, line) in text.split('\n').enumerate() {
        if let Some(version) = line.strip_prefix("%YAML") {
            let version = version.split('#').next().unwrap_or_default().trim();
            if version != "1.1" && version.contains('.') {
                let position = Position { line: index + 1, column: 1 };
                let at = if index == 0 { String::new() } else { format!("line {index}: ") };
                return Err(Error::new(format!("yaml: {at}found incompatible YAML document"), position));
            }
        } else if !line.starts_with('%') && !line.trim_start().starts_with('#') && !line.trim().is_empty() {
            break;
        }
    }
    Ok(())
}

/// The longest value shown in a message.
const MAX_SHOWN: usize = 2000;

/// A value as Go's `%#v` shows what goyaml decoded.
pub(super) fn go_syntax(value: &Value) -> String {
    let mut out = String::new();
    if value.is_null() {
        return "<nil>".to_owned();
    }
    show(&mut out, value);
    out
}

fn show(out: &mut String, value: &Value) {
    if out.len() > MAX_SHOWN {
        return;
    }
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Value::UInt(u) => {
            let _ = write!(out, "{u:#x}");
        }
        Value::Float(f) => out.push_str(&super::resolve::go_float(&format!("{f:e}"))),
        Value::String(s) => out.push_str(&go_quoted(s)),
        Value::List(list) => {
            out.push_str("[]interface {}{");
            for (i, item) in list.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                show(out, item);
            }
            out.push('}');
        }
        Value::Map(map) => {
            out.push_str("map[interface {}]interface {}{");
            for (i, (key, item)) in map.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                out.push_str(&go_quoted(key));
                out.push(':');
                show(out, item);
            }
            out.push('}');
        }
    }
}

/// A string in Go's quotes.
pub(super) fn go_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars().take(MAX_SHOWN) {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
