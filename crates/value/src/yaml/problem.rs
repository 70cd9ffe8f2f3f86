//! What is wrong, in the words of goyaml, because API clients and operators know them.

use std::fmt::Write as _;

use super::{Error, Position};
use crate::Value;

/// An error of the scanner: something cannot stand here. The first line is not named.
pub(super) fn scanner(position: Position, words: &str) -> Error {
    at_line(if position.line > 1 { position.line } else { 0 }, position, words)
}

/// An error of the parser: a token is not the expected one. goyaml counts lines from zero here, so it names the line before.
pub(super) fn parser(position: Position, words: &str) -> Error {
    at_line(position.line.saturating_sub(1), position, words)
}

fn at_line(line: usize, position: Position, words: &str) -> Error {
    let message = if line == 0 { format!("yaml: {words}") } else { format!("yaml: line {line}: {words}") };
    Error::new(message, position)
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
