//! Scans plain, quoted and block scalars.

use std::borrow::Cow;

use super::{Scanner, YamlTokenKind};
use crate::yaml::Error;

/// The line breaks between two lines of a folded scalar.
#[derive(Default)]
struct Breaks {
    first: Option<&'static str>,
    rest: String,
}

impl Breaks {
    fn push(&mut self, line_break: &'static str) {
        match self.first {
            None => self.first = Some(line_break),
            Some(_) => self.rest.push_str(line_break),
        }
    }

    /// Folds line breaks: a single break becomes a space, several lose the first.
    fn fold_into(&mut self, text: &mut String) {
        match self.first.take() {
            Some("\n") if self.rest.is_empty() => text.push(' '),
            Some("\n") | None => {}
            Some(first) => text.push_str(first),
        }
        text.push_str(&self.rest);
        self.rest.clear();
    }
}

/// How a block scalar treats its trailing line breaks.
#[derive(Clone, Copy, PartialEq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl<'a> Scanner<'a> {
    pub(super) fn plain(&mut self) -> Result<YamlTokenKind<'a>, Error> {
        let indent = self.indent.map_or(0, |indent| indent + 1);
        let start = self.at;
        let mut end = start;
        let mut built: Option<String> = None;
        let mut breaks = Breaks::default();
        loop {
            if self.is_document_indicator() || self.peek_byte() == b'#' {
                break;
            }
            let word = self.at;
            self.skip_plain_word();
            if self.at > word {
                let words = self.since(word);
                if breaks.first.is_some() {
                    let before = self.text.get(start..end).unwrap_or_default();
                    let text = built.get_or_insert_with(|| before.to_owned());
                    breaks.fold_into(text);
                    text.push_str(words);
                } else if let Some(text) = &mut built {
                    text.push_str(self.since(end));
                }
                end = self.at;
            }
            if !self.is_blank() && !self.is_break() {
                break;
            }
            while self.is_blank() || self.is_break() {
                if self.is_break() {
                    breaks.push(self.skip_break());
                } else {
                    if breaks.first.is_some() && self.column < indent && self.peek_byte() == b'\t' {
                        return Err(self.problem("found a tab character that violates indentation"));
                    }
                    self.skip();
                }
            }
            if !self.in_flow() && self.column < indent {
                break;
            }
        }
        if breaks.first.is_some() {
            self.key_allowed = true;
        }
        let text = match built {
            Some(text) => Cow::Owned(text),
            None => Cow::Borrowed(self.text.get(start..end).unwrap_or_default()),
        };
        Ok(YamlTokenKind::Scalar { text, plain: true })
    }

    fn skip_plain_word(&mut self) {
        while !self.is_blank_or_end(0) {
            match self.peek_byte() {
                b':' if self.is_blank_or_end(1) => return,
                b',' | b'?' | b'[' | b']' | b'{' | b'}' if self.in_flow() => return,
                _ => self.skip(),
            }
        }
    }

    pub(super) fn quoted(&mut self) -> Result<YamlTokenKind<'a>, Error> {
        let quote = self.peek_byte();
        self.skip();
        if let Some(text) = self.simple_quoted(quote) {
            return Ok(YamlTokenKind::Scalar { text: Cow::Borrowed(text), plain: false });
        }
        let mut text = Cow::Borrowed("");
        let mut breaks = Breaks::default();
        loop {
            if self.is_document_indicator() {
                return Err(self.problem("found unexpected document indicator"));
            }
            if self.is_end() {
                return Err(self.problem("found unexpected end of stream"));
            }
            let escaped_break = self.quoted_words(quote, &mut text)?;
            if self.peek_byte() == quote {
                break;
            }
            let blanks = self.at;
            let mut broken = escaped_break;
            while self.is_blank() || self.is_break() {
                if self.is_break() {
                    let line_break = self.skip_break();
                    // After an escaped break, which produces nothing, every further break counts.
                    if escaped_break {
                        breaks.rest.push_str(line_break);
                    } else {
                        breaks.push(line_break);
                    }
                    broken = true;
                } else {
                    self.skip();
                }
            }
            if broken {
                breaks.fold_into(text.to_mut());
            } else {
                append(&mut text, self.since(blanks));
            }
        }
        self.skip();
        Ok(YamlTokenKind::Scalar { text, plain: false })
    }

    /// The quoted text, if it is on one line and contains nothing to escape or fold.
    fn simple_quoted(&mut self, quote: u8) -> Option<&'a str> {
        let rest = self.text.get(self.at..)?;
        let len = rest.bytes().position(|b| b == quote || !matches!(b, b' '..=b'[' | b']'..=b'~'))?;
        let text = rest.get(..len)?;
        if !rest.get(len..)?.starts_with(char::from(quote)) || self.ahead(len + 1) == quote {
            return None;
        }
        self.at += len + 1;
        self.index += len + 1;
        self.column += len + 1;
        Some(text)
    }

    /// Reads up to a blank, a line break, the end or the closing quote. Returns true after an escaped line break.
    fn quoted_words(&mut self, quote: u8, text: &mut Cow<'a, str>) -> Result<bool, Error> {
        let mut start = self.at;
        while !self.is_blank_or_end(0) {
            match self.peek_byte() {
                b'\'' if quote == b'\'' && self.ahead(1) == b'\'' => {
                    self.skip();
                    append(text, self.since(start));
                    self.skip();
                    start = self.at;
                }
                b'\\' if quote == b'"' => {
                    append(text, self.since(start));
                    if self.break_len(1) > 0 {
                        self.skip();
                        self.skip_break();
                        return Ok(true);
                    }
                    let c = self.escape()?;
                    text.to_mut().push(c);
                    start = self.at;
                }
                b if b == quote => break,
                _ => self.skip(),
            }
        }
        append(text, self.since(start));
        Ok(false)
    }

    fn escape(&mut self) -> Result<char, Error> {
        let c = match self.ahead(1) {
            b'0' => '\0',
            b'e' => '\u{1b}',
            b @ (b' ' | b'\t' | b'"' | b'\'' | b'\\') => char::from(b),
            b'N' => '\u{85}',
            b'_' => '\u{a0}',
            b'L' => '\u{2028}',
            b'P' => '\u{2029}',
            b'x' => return self.coded(2),
            b'u' => return self.coded(4),
            b'U' => return self.coded(8),
            letter => crate::go::escaped_control(char::from(letter))
                .ok_or_else(|| self.problem("found unknown escape character"))?,
        };
        self.skip();
        self.skip();
        Ok(c)
    }

    /// A character given by hexadecimal digits.
    fn coded(&mut self, digits: usize) -> Result<char, Error> {
        self.skip();
        self.skip();
        let mut code = 0_u32;
        for offset in 0..digits {
            match char::from(self.ahead(offset)).to_digit(16) {
                Some(digit) => code = code.wrapping_mul(16).wrapping_add(digit),
                None => return Err(self.problem("did not find expected hexdecimal number")),
            }
        }
        let Some(c) = char::from_u32(code) else {
            return Err(self.problem("found invalid Unicode character escape code"));
        };
        for _ in 0..digits {
            self.skip();
        }
        Ok(c)
    }

    pub(super) fn block_scalar(&mut self) -> Result<YamlTokenKind<'a>, Error> {
        let literal = self.peek_byte() == b'|';
        self.skip();
        let (chomping, increment) = self.block_header()?;
        let mut indent = increment.map(|increment| self.indent.unwrap_or(0) + increment);
        let mut text = String::new();
        let mut line_break = "";
        let mut blank_lines = String::new();
        self.block_breaks(&mut indent, &mut blank_lines)?;
        let mut after_indented = false;
        while indent == Some(self.column) && !self.is_end() {
            // Lines that begin with a blank are not folded, nor are the breaks around them.
            let indented = self.is_blank();
            if !literal && !after_indented && !indented && line_break == "\n" {
                if blank_lines.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(line_break);
            }
            text.push_str(&blank_lines);
            blank_lines.clear();
            after_indented = indented;
            let start = self.at;
            while !self.is_end() && !self.is_break() {
                self.skip();
            }
            text.push_str(self.since(start));
            line_break = self.skip_break();
            self.block_breaks(&mut indent, &mut blank_lines)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(line_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&blank_lines);
        }
        Ok(YamlTokenKind::Scalar { text: Cow::Owned(text), plain: false })
    }

    /// Parses the indicators after `|` or `>`: chomping and indentation, in either order.
    fn block_header(&mut self) -> Result<(Chomping, Option<usize>), Error> {
        let (mut chomping, mut increment) = (None, None);
        loop {
            match self.peek_byte() {
                b'+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                b'-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                b'0' if increment.is_none() => {
                    return Err(self.problem("found an indentation indicator equal to 0"));
                }
                digit @ b'1'..=b'9' if increment.is_none() => increment = Some(usize::from(digit - b'0')),
                _ => break,
            }
            self.skip();
        }
        self.skip_line_end()?;
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    /// Skips indentation and blank lines. Without an explicit indentation, the first other line sets it.
    fn block_breaks(&mut self, indent: &mut Option<usize>, breaks: &mut String) -> Result<(), Error> {
        let mut deepest = 0;
        loop {
            let inside = |column: usize| indent.is_none_or(|indent| column < indent);
            while inside(self.column) && self.peek_byte() == b' ' {
                self.skip();
            }
            deepest = deepest.max(self.column);
            if inside(self.column) && self.peek_byte() == b'\t' {
                return Err(self.problem("found a tab character where an indentation space is expected"));
            }
            if !self.is_break() {
                break;
            }
            breaks.push_str(self.skip_break());
        }
        let least = self.indent.map_or(1, |indent| indent + 1).max(1);
        indent.get_or_insert(deepest.max(least));
        Ok(())
    }
}

fn append<'a>(text: &mut Cow<'a, str>, more: &'a str) {
    if text.is_empty() {
        *text = Cow::Borrowed(more);
    } else if !more.is_empty() {
        text.to_mut().push_str(more);
    }
}
