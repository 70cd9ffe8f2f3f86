//! Writes YAML exactly as `sigs.k8s.io/yaml`.
//!
//! Two spaces per level, lists not indented below their key, plain scalars where they read back unchanged, literal
//! blocks for text with line breaks, and lines folded at the first space after column 80.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use super::resolve;
use crate::{Map, Str, Value};

/// Writes a value as a YAML document.
pub fn write(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    // Writing to a string does not fail.
    let _ = write_to(value, &mut out);
    out
}

/// Like [`fn@write`], in parts of some kilobytes and single scalars. The document may be a hundred times as large as the value, because each
/// line is indented. Ends at the first error of `sink`.
pub fn write_to(value: &Value, sink: &mut dyn Write) -> fmt::Result {
    let mut emitter = Emitter {
        out: String::with_capacity(256),
        sink,
        sent: Ok(()),
        column: 0,
        indent: None,
        blank: true,
        indenting: true,
    };
    emitter.node(value, ScalarContext::Root);
    emitter.start_line();
    emitter.flush();
    emitter.sent
}

/// Length of a part in bytes from which it is passed on.
const PART: usize = 4096;

const INDENT: usize = 2;
const WIDTH: usize = 80;

/// Longer keys are written with a `?` indicator.
const MAX_SIMPLE_KEY: usize = 128;

/// The parent of a node.
#[derive(Clone, Copy, PartialEq)]
enum ScalarContext {
    Root,
    List,
    Map,
    /// A key followed by its colon on the same line.
    SimpleKey,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

struct Emitter<'s> {
    /// Bytes that are not passed on yet.
    out: String,
    sink: &'s mut dyn Write,
    sent: fmt::Result,
    /// Current column in characters, from 0.
    column: usize,
    /// Indentation of the innermost block; `None` before the first block.
    indent: Option<usize>,
    /// The last character separates tokens: a scalar may follow without a space.
    blank: bool,
    /// The line so far consists of indentation and of `-`, `?` or `:` indicators that open a block.
    indenting: bool,
}

impl Emitter<'_> {
    /// Passes on what is written so far, unless the sink has failed.
    fn flush(&mut self) {
        if self.sent.is_ok() {
            self.sent = self.sink.write_str(&self.out);
        }
        self.out.clear();
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    /// Moves to the indentation of the current block, on a new line unless this one contains only indentation.
    fn start_line(&mut self) {
        if self.out.len() >= PART {
            self.flush();
        }
        let indent = self.indent.unwrap_or(0);
        if !self.indenting || self.column > indent || (self.column == indent && !self.blank) {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.blank = true;
        self.indenting = true;
    }

    /// Writes an indicator that opens a block entry; a nested block may start on the same line.
    fn opening(&mut self, sign: char) {
        self.separate();
        self.put(sign);
        self.blank = false;
    }

    /// Writes an indicator that does not open a block entry.
    fn sign(&mut self, sign: char) {
        self.put(sign);
        self.blank = false;
        self.indenting = false;
    }

    fn separate(&mut self) {
        if !self.blank {
            self.put(' ');
        }
    }

    /// Runs `inner` with a deeper indentation.
    fn deeper(&mut self, indent: usize, inner: impl FnOnce(&mut Self)) {
        let outer = self.indent.replace(indent);
        inner(self);
        self.indent = outer;
    }

    fn node(&mut self, value: &Value, context: ScalarContext) {
        match value {
            _ if self.sent.is_err() => {}
            Value::Null => self.scalar("null", Style::Plain, context),
            Value::Bool(true) => self.scalar("true", Style::Plain, context),
            Value::Bool(false) => self.scalar("false", Style::Plain, context),
            Value::Int(i) => self.scalar(&i.to_string(), Style::Plain, context),
            Value::UInt(u) => self.scalar(&u.to_string(), Style::Plain, context),
            Value::Float(f) => self.scalar(&float(*f), Style::Plain, context),
            Value::String(text) => self.text(text, context),
            Value::List(list) if list.is_empty() => self.empty("[]"),
            Value::Map(map) if map.is_empty() => self.empty("{}"),
            Value::List(list) => self.list(list, context),
            Value::Map(map) => self.map(map),
        }
    }

    fn empty(&mut self, signs: &str) {
        self.separate();
        for sign in signs.chars() {
            self.sign(sign);
        }
    }

    fn list(&mut self, list: &[Value], context: ScalarContext) {
        let below_key = context == ScalarContext::Map && !self.indenting;
        let indent = self.indent.map_or(0, |outer| if below_key { outer } else { outer + INDENT });
        self.deeper(indent, |emitter| {
            for item in list {
                emitter.start_line();
                emitter.opening('-');
                emitter.node(item, ScalarContext::List);
            }
        });
    }

    fn map(&mut self, map: &Map) {
        let indent = self.indent.map_or(0, |outer| outer + INDENT);
        self.deeper(indent, |emitter| {
            for (key, value) in in_order(map) {
                emitter.start_line();
                if key.len() <= MAX_SIMPLE_KEY && !key.contains(is_break) {
                    emitter.text(key, ScalarContext::SimpleKey);
                    emitter.sign(':');
                } else {
                    emitter.opening('?');
                    emitter.text(key, ScalarContext::Map);
                    emitter.start_line();
                    emitter.opening(':');
                }
                emitter.node(value, ScalarContext::Map);
            }
        });
    }

    fn text(&mut self, text: &str, context: ScalarContext) {
        let style = if text.contains('\n') {
            Style::Literal
        } else if resolve::needs_quotes(text) {
            Style::DoubleQuoted
        } else {
            Style::Plain
        };
        self.scalar(text, style, context);
    }

    /// Writes a scalar in the wanted style, or in the closest style that can express it.
    fn scalar(&mut self, text: &str, wanted: Style, context: ScalarContext) {
        let allowed = AllowedStyles::for_text(text);
        let mut style = wanted;
        if style == Style::Plain && !allowed.plain {
            style = Style::SingleQuoted;
        }
        if (style == Style::SingleQuoted && !allowed.single_quoted)
            || (style == Style::Literal && (!allowed.literal || context == ScalarContext::SimpleKey))
        {
            style = Style::DoubleQuoted;
        }
        let fold = context != ScalarContext::SimpleKey;
        let indent = self.indent.map_or(INDENT, |outer| outer + INDENT);
        self.deeper(indent, |emitter| match style {
            Style::Plain => emitter.plain(text, fold),
            Style::SingleQuoted => emitter.single_quoted(text, fold),
            Style::DoubleQuoted => emitter.double_quoted(text, fold),
            Style::Literal => emitter.literal(text),
        });
    }

    fn plain(&mut self, text: &str, fold: bool) {
        self.separate();
        self.folded(text, fold, false);
        self.blank = false;
        self.indenting = false;
    }

    fn single_quoted(&mut self, text: &str, fold: bool) {
        self.separate();
        self.sign('\'');
        self.folded(text, fold, true);
        self.sign('\'');
    }

    /// Writes text without line breaks, folding at single spaces past the width.
    fn folded(&mut self, text: &str, fold: bool, quoted: bool) {
        let mut after_space = false;
        let mut chars = text.chars().peekable();
        let mut first = true;
        while let Some(c) = chars.next() {
            let single = !after_space && chars.peek().is_none_or(|next| *next != ' ');
            let inside = !quoted || (!first && chars.peek().is_some());
            if c == ' ' && fold && single && inside && self.column > WIDTH {
                self.start_line();
            } else {
                if quoted && c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                if c != ' ' {
                    self.indenting = false;
                }
            }
            after_space = c == ' ';
            first = false;
        }
    }

    fn double_quoted(&mut self, text: &str, fold: bool) {
        let all = text.starts_with('\u{feff}'); // as libyaml
        self.separate();
        self.sign('"');
        let mut after_space = false;
        let mut chars = text.chars().peekable();
        let mut first = true;
        while let Some(c) = chars.next() {
            if all || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                self.escape(c);
            } else if c == ' '
                && fold
                && !after_space
                && !first
                && self.column > WIDTH
                && let Some(next) = chars.peek().copied()
            {
                self.start_line();
                if next == ' ' {
                    self.put('\\');
                }
            } else {
                self.put(c);
            }
            after_space = c == ' ';
            first = false;
        }
        self.sign('"');
    }

    fn escape(&mut self, c: char) {
        self.put('\\');
        let short = match c {
            '\0' => Some('0'),
            '\u{1b}' => Some('e'),
            '\u{85}' => Some('N'),
            '\u{a0}' => Some('_'),
            '\u{2028}' => Some('L'),
            '\u{2029}' => Some('P'),
            _ => crate::go::escape_letter(c),
        };
        match short {
            Some(short) => self.put(short),
            None => {
                let code = u32::from(c);
                let before = self.out.len();
                let _ = match code {
                    0..=0xff => write!(self.out, "x{code:02X}"),
                    0x100..=0xffff => write!(self.out, "u{code:04X}"),
                    _ => write!(self.out, "U{code:08X}"),
                };
                self.column += self.out.len() - before;
            }
        }
    }

    fn literal(&mut self, text: &str) {
        self.separate();
        self.sign('|');
        if text.starts_with([' ', '\n']) {
            self.put('2'); // INDENT: without it the first line would set the indentation
        }
        if !text.ends_with('\n') {
            self.put('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.put('+');
        }
        self.line_break();
        self.indenting = true;
        self.blank = true;
        for line in text.split_inclusive('\n') {
            let words = line.strip_suffix('\n').unwrap_or(line);
            if !words.is_empty() {
                self.start_line();
                self.out.push_str(words);
                self.column += words.chars().count();
                self.indenting = false;
            }
            if words.len() < line.len() {
                self.line_break();
                self.indenting = true;
            }
        }
    }
}

/// The styles that can express a text.
struct AllowedStyles {
    plain: bool,
    single_quoted: bool,
    literal: bool,
}

impl AllowedStyles {
    fn for_text(text: &str) -> Self {
        let (mut indicator, mut special, mut breaks) = (false, false, false);
        let (mut break_space, mut space_break) = (false, false);
        let mut previous = None;
        if text.starts_with("---") || text.starts_with("...") {
            indicator = true;
        }
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let before_blank = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            indicator |= match (previous, c) {
                (None, c) if "#,[]{}&*!|>'\"%@`".contains(c) => true,
                (None, '?' | '-') | (_, ':') => before_blank,
                (Some(' ' | '\t' | '\0'), '#') => true,
                (Some(before), '#') => is_break(before),
                _ => false,
            };
            // Unlike libyaml, always escape the line breaks of YAML 1.1, because other readers do not know them.
            special |= !is_printable(c) || matches!(c, '\u{2028}' | '\u{2029}');
            breaks |= is_break(c);
            break_space |= c == ' ' && previous.is_some_and(is_break);
            space_break |= previous == Some(' ') && is_break(c);
            previous = Some(c);
        }
        let edge = |c: char| c == ' ' || is_break(c);
        AllowedStyles {
            plain: !(text.starts_with(edge) || text.ends_with(edge))
                && !(break_space || space_break || special || breaks || indicator),
            single_quoted: !(break_space || space_break || special),
            literal: !(text.is_empty() || text.ends_with(' ') || space_break || special),
        }
    }
}

/// True for the line breaks of YAML 1.1.
fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// True for characters that libyaml does not escape.
fn is_printable(c: char) -> bool {
    match c {
        '\n' | ' '..='~' => true,
        '\u{a0}'..='\u{fffd}' => c != '\u{feff}',
        _ => false,
    }
}

/// Formats a float as goyaml prints the number it reads from JSON.
fn float(f: f64) -> String {
    let text = crate::write::float(f);
    match resolve::plain(text.as_str().into()) {
        resolve::ResolvedScalar::Int(i) => i.to_string(),
        resolve::ResolvedScalar::Float(f) => resolve::go_float(&format!("{f:e}")),
        _ => text,
    }
}

/// Entries in goyaml's order: letters after all other characters, and numbers inside keys by value.
fn in_order(map: &Map) -> Vec<(&Str, &Value)> {
    merge_sorted(map.iter().collect())
}

/// Merge sort. goyaml's key order is not transitive, and the standard sorts may panic on such an order.
fn merge_sorted<'m>(mut entries: Vec<(&'m Str, &'m Value)>) -> Vec<(&'m Str, &'m Value)> {
    if entries.len() < 2 {
        return entries;
    }
    let right = entries.split_off(entries.len() / 2);
    let mut left = merge_sorted(entries).into_iter().peekable();
    let mut right = merge_sorted(right).into_iter().peekable();
    let mut out = Vec::with_capacity(left.len() + right.len());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) if compare_keys(b, a) == Ordering::Less => right.next(),
            (Some(_), _) => left.next(),
            (None, _) => right.next(),
        };
        match next {
            Some(entry) => out.push(entry),
            None => return out,
        }
    }
}

fn compare_keys(a: &str, b: &str) -> Ordering {
    let mut at = 0;
    let (mut rest_a, mut rest_b) = (a.chars(), b.chars());
    loop {
        let (here_a, here_b) = (rest_a.as_str(), rest_b.as_str());
        let (Some(x), Some(y)) = (rest_a.next(), rest_b.next()) else {
            return here_a.len().min(1).cmp(&here_b.len().min(1));
        };
        if x == y {
            at += x.len_utf8();
            continue;
        }
        match (x.is_alphabetic(), y.is_alphabetic()) {
            (true, true) => return x.cmp(&y),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        // Equal digits before this position count if one number continues with a zero.
        let before = a.get(..at).unwrap_or_default();
        let nonzero = before.chars().rev().take_while(char::is_ascii_digit).any(|c| c != '0');
        let start = i64::from((x == '0' || y == '0') && nonzero);
        let (number_a, digits_a) = leading_number(here_a, start);
        let (number_b, digits_b) = leading_number(here_b, start);
        return number_a.cmp(&number_b).then(digits_a.cmp(&digits_b)).then(x.cmp(&y));
    }
}

fn leading_number(text: &str, start: i64) -> (i64, usize) {
    text.chars().map_while(|c| c.to_digit(10)).fold((start, 0), |(number, digits), digit| {
        (number.wrapping_mul(10).wrapping_add(i64::from(digit)), digits + 1)
    })
}
