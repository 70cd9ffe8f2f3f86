//! The strings extension library, version 2.

use super::format_string;
use super::{check_text_length, count, int, list, string};
use crate::check::Validator;
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult};
use crate::val::{TruncatedVal, Val, length};

/// Declares version 0 of the library: no `format`, no `strings.quote`.
pub(crate) fn add_first_version(b: &mut Builder) {
    b.function("charAt", &[("string_char_at_int", "string.(int) -> string", char_at)]);
    b.function(
        "indexOf",
        &[
            ("string_index_of_string", "string.(string) -> int", |_, args| index_of(args, 0)),
            ("string_index_of_string_int", "string.(string, int) -> int", |_, args| {
                index_of(args, int(args, 2)?)
            }),
        ],
    );
    b.function(
        "lastIndexOf",
        &[
            ("string_last_index_of_string", "string.(string) -> int", last_index_of),
            ("string_last_index_of_string_int", "string.(string, int) -> int", |_, args| {
                last_index_from(string(args, 0)?, string(args, 1)?, int(args, 2)?)
            }),
        ],
    );
    b.function(
        "lowerAscii",
        &[("string_lower_ascii", "string.() -> string", |_, args| {
            Ok(Val::string(string(args, 0)?.to_ascii_lowercase()))
        })],
    );
    b.function(
        "replace",
        &[
            ("string_replace_string_string", "string.(string, string) -> string", |_, args| {
                replace(args, -1)
            }),
            ("string_replace_string_string_int", "string.(string, string, int) -> string", |_, args| {
                replace(args, int(args, 3)?)
            }),
        ],
    );
    b.function(
        "split",
        &[
            ("string_split_string", "string.(string) -> list(string)", |_, args| split(args, -1)),
            ("string_split_string_int", "string.(string, int) -> list(string)", |_, args| {
                split(args, int(args, 2)?)
            }),
        ],
    );
    b.function(
        "substring",
        &[
            ("string_substring_int", "string.(int) -> string", |_, args| {
                let text = string(args, 0)?;
                let start = int(args, 1)?;
                let end = i64::try_from(length(text)).unwrap_or(i64::MAX);
                if start < 0 || start > end {
                    return Err(out_of_range(start));
                }
                substring(text, start, end)
            }),
            ("string_substring_int_int", "string.(int, int) -> string", |_, args| {
                substring(string(args, 0)?, int(args, 1)?, int(args, 2)?)
            }),
        ],
    );
    b.function(
        "trim",
        &[("string_trim", "string.() -> string", |_, args| {
            // Both Go and Rust trim Unicode white space.
            Ok(Val::string(string(args, 0)?.trim()))
        })],
    );
    b.function(
        "upperAscii",
        &[("string_upper_ascii", "string.() -> string", |_, args| {
            Ok(Val::string(string(args, 0)?.to_ascii_uppercase()))
        })],
    );
    b.function(
        "join",
        &[
            ("list_join", "list(string).() -> string", |_, args| join(args, "")),
            ("list_join_string", "list(string).(string) -> string", |_, args| join(args, string(args, 1)?)),
        ],
    );
}

/// Declares version 2 of the library.
pub(crate) fn add(b: &mut Builder) {
    add_first_version(b);
    b.function("format", &[("string_format", "string.(list(dyn)) -> string", format_string::format)]);
    b.stops_early("format");
    b.function(
        "strings.quote",
        &[("strings_quote", "(string) -> string", |_, args| Ok(Val::string(quote(string(args, 0)?))))],
    );
    b.validator(Validator::FormatStrings);
}

fn out_of_range(at: i64) -> Error {
    Error::new(format!("index out of range: {at}"))
}

/// Byte offset of a code point index; `None` past the end.
fn byte_at(text: &str, at: usize) -> Option<usize> {
    if text.is_ascii() {
        return (at <= text.len()).then_some(at);
    }
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(at)
}

fn char_at<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let text = string(args, 0)?;
    let at = int(args, 1)?;
    let byte = usize::try_from(at).ok().and_then(|at| byte_at(text, at)).ok_or_else(|| out_of_range(at))?;
    let c = text.get(byte..).and_then(|rest| rest.chars().next());
    Ok(Val::string(c.map(String::from).unwrap_or_default()))
}

fn index_of<'a>(args: &[Val<'a>], offset: i64) -> EvalResult<'a> {
    let (text, part) = (string(args, 0)?, string(args, 1)?);
    let from = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if part.is_empty() {
        return Ok(count(from.min(length(text))));
    }
    let Some(start) = byte_at(text, from) else { return Ok(Val::Int(-1)) };
    match text.get(start..).and_then(|rest| rest.find(part)) {
        Some(found) => Ok(count(length(text.get(..start + found).unwrap_or_default()))),
        None => Ok(Val::Int(-1)),
    }
}

fn last_index_of<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, part) = (string(args, 0)?, string(args, 1)?);
    if part.is_empty() {
        return Ok(count(length(text)));
    }
    Ok(text.rfind(part).map_or(Val::Int(-1), |byte| count(length(text.get(..byte).unwrap_or_default()))))
}

fn last_index_from<'a>(text: &str, part: &str, offset: i64) -> EvalResult<'a> {
    let from = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    let size = length(text);
    if part.is_empty() {
        return Ok(count(from.min(size)));
    }
    if from >= size || length(part) > size {
        return Ok(Val::Int(-1));
    }
    // The match may start at `from` at the latest, so it ends at most the part's length after it.
    let start = byte_at(text, from).unwrap_or(text.len());
    let end = text.floor_char_boundary(start.saturating_add(part.len()));
    let found = text.get(..end).and_then(|searched| searched.rfind(part));
    Ok(found.map_or(Val::Int(-1), |byte| count(length(text.get(..byte).unwrap_or_default()))))
}

fn replace<'a>(args: &[Val<'a>], limit: i64) -> EvalResult<'a> {
    let (text, from, to) = (string(args, 0)?, string(args, 1)?, string(args, 2)?);
    if to.len() > from.len() {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let count = if from.is_empty() { length(text) + 1 } else { text.matches(from).count() };
        let growth = count.min(limit).saturating_mul(to.len() - from.len());
        check_text_length(text.len().saturating_add(growth))?;
    }
    Ok(Val::string(match usize::try_from(limit) {
        Ok(limit) => text.replacen(from, to, limit),
        Err(_) => text.replace(from, to),
    }))
}

fn split<'a>(args: &[Val<'a>], limit: i64) -> EvalResult<'a> {
    let (text, separator) = (string(args, 0)?, string(args, 1)?);
    if limit == 0 {
        return Ok(Val::list(Vec::new()));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if !separator.is_empty() {
        return Ok(Val::strings(text.splitn(limit, separator)));
    }
    // With an empty separator every code point is a part, and the last part takes the rest.
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (part, after) = rest.split_at(c.len_utf8());
        parts.push(part);
        rest = after;
    }
    Ok(Val::strings(parts))
}

fn substring<'a>(text: &str, start: i64, end: i64) -> EvalResult<'a> {
    if start > end {
        return Err(Error::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let byte =
        |at: i64| usize::try_from(at).ok().and_then(|at| byte_at(text, at)).ok_or_else(|| out_of_range(at));
    let (start, end) = (byte(start)?, byte(end)?);
    Ok(Val::string(text.get(start..end).unwrap_or_default()))
}

fn join<'a>(args: &[Val<'a>], separator: &str) -> EvalResult<'a> {
    let mut text = String::new();
    for (i, item) in list(args, 0)?.iter().enumerate() {
        if i > 0 {
            text.push_str(separator);
        }
        match item.as_str() {
            Some(part) => {
                check_text_length(text.len() + part.len())?;
                text.push_str(part);
            }
            None => return Err(Error::new(format!("join: invalid input: {}", TruncatedVal(&item)))),
        }
    }
    Ok(Val::string(text))
}

/// cel-go's `strings.quote`. Unlike Go's `strconv.Quote`, it does not escape characters that cannot be printed.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match value::go::escape_letter(c) {
            Some(letter) => out.extend(['\\', letter]),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}
