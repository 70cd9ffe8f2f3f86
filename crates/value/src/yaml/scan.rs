//! Scans YAML 1.1 text into tokens, as libyaml (and so Kubernetes) does.
//!
//! Indentation becomes tokens that open and close blocks. A key is known to be one only when its colon follows, so
//! tokens wait in a queue until no [`YamlTokenKind::Key`] can precede them. A key without a question mark must be on
//! one line and within 1024 characters.

mod scalar;
mod tag;

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{Error, Position, problem};

/// A token with its start position.
#[derive(Debug)]
pub(super) struct YamlToken<'a> {
    pub(super) sign: YamlTokenKind<'a>,
    pub(super) position: Position,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum YamlTokenKind<'a> {
    StreamEnd,
    Version(u32, u32),
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockList,
    BlockMap,
    BlockEnd,
    FlowList,
    FlowListEnd,
    FlowMap,
    FlowMapEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'a str),
    Anchor(&'a str),
    Tag { handle: String, suffix: String },
    Scalar { text: Cow<'a, str>, plain: bool },
}

/// A token that becomes a key if a colon follows.
#[derive(Clone, Copy)]
struct PossibleKey {
    /// Index of the key's first token.
    token: usize,
    /// Must become a key, because it is at the indentation of the block's keys.
    required: bool,
    position: Position,
    index: usize,
}

/// Upper bound of the distance between the start of a key and its colon.
const MAX_KEY: usize = 1024;

pub(super) struct Scanner<'a> {
    text: &'a str,
    /// Byte offset, character index and position of the next character.
    at: usize,
    index: usize,
    line: usize,
    column: usize,
    queue: VecDeque<YamlToken<'a>>,
    /// Number of tokens taken from the queue.
    taken: usize,
    /// Column of the innermost block, and of the enclosing blocks.
    indent: Option<usize>,
    indents: Vec<Option<usize>>,
    /// The possible key in the block context, then one per open flow collection.
    keys: Vec<Option<PossibleKey>>,
    key_allowed: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Scanner {
            text,
            at: 0,
            index: 0,
            line: 1,
            column: 0,
            queue: VecDeque::new(),
            taken: 0,
            indent: None,
            indents: Vec::new(),
            keys: vec![None],
            key_allowed: true,
        }
    }

    /// The next token, without consuming it.
    pub(super) fn peek(&mut self) -> Result<&YamlToken<'a>, Error> {
        while self.needs_more()? {
            self.fetch()?;
        }
        self.queue.front().ok_or_else(|| problem::parser(Position::START, "unexpected end of stream"))
    }

    /// Consumes the next token. There is none after the end of the stream.
    pub(super) fn next(&mut self) -> Result<YamlToken<'a>, Error> {
        self.peek()?;
        self.taken += 1;
        self.queue.pop_front().ok_or_else(|| problem::parser(Position::START, "unexpected end of stream"))
    }

    /// True if the first queued token may still turn out to begin a key.
    fn needs_more(&mut self) -> Result<bool, Error> {
        if self.queue.is_empty() {
            return Ok(true);
        }
        let taken = self.taken;
        match self.keys.iter().position(|key| key.is_some_and(|key| key.token == taken)) {
            Some(level) => self.key_is_valid(level),
            None => Ok(false),
        }
    }

    fn position(&self) -> Position {
        Position { line: self.line, column: self.column + 1 }
    }

    fn problem(&self, words: &str) -> Error {
        problem::scanner(self.position(), words)
    }

    fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// The byte at an offset from the next one; zero past the end.
    fn ahead(&self, by: usize) -> u8 {
        self.text.as_bytes().get(self.at + by).copied().unwrap_or(0)
    }

    fn peek_byte(&self) -> u8 {
        self.ahead(0)
    }

    fn is_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Length in bytes of the line break at an offset from the next byte; zero if there is none.
    fn break_len(&self, by: usize) -> usize {
        match self.ahead(by) {
            b'\r' if self.ahead(by + 1) == b'\n' => 2,
            b'\r' | b'\n' => 1,
            0xc2 if self.ahead(by + 1) == 0x85 => 2,
            0xe2 if self.ahead(by + 1) == 0x80 && matches!(self.ahead(by + 2), 0xa8 | 0xa9) => 3,
            _ => 0,
        }
    }

    fn is_break(&self) -> bool {
        self.break_len(0) > 0
    }

    fn is_blank(&self) -> bool {
        matches!(self.peek_byte(), b' ' | b'\t')
    }

    /// True if a blank, a line break or the end is at an offset from the next byte.
    fn is_blank_or_end(&self, by: usize) -> bool {
        matches!(self.ahead(by), b' ' | b'\t' | 0) || self.break_len(by) > 0
    }

    /// Consumes one character, not a line break.
    fn skip(&mut self) {
        let width = match self.peek_byte() {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        self.at += width;
        self.index += 1;
        self.column += 1;
    }

    /// Consumes a line break and returns its normalized form.
    fn skip_break(&mut self) -> &'static str {
        let len = self.break_len(0);
        let line_break = match (len, self.ahead(2)) {
            (3, 0xa8) => "\u{2028}",
            (3, _) => "\u{2029}",
            (0, _) => return "",
            _ => "\n",
        };
        self.index += if self.peek_byte() == b'\r' { len } else { 1 };
        self.at += len;
        self.line += 1;
        self.column = 0;
        line_break
    }

    fn skip_blanks(&mut self) {
        while self.is_blank() {
            self.skip();
        }
    }

    fn skip_comment(&mut self) {
        if self.peek_byte() == b'#' {
            while !self.is_end() && !self.is_break() {
                self.skip();
            }
        }
    }

    /// Skips blanks, a comment and the line break. Fails if anything else is on the line.
    fn skip_line_end(&mut self) -> Result<(), Error> {
        self.skip_blanks();
        self.skip_comment();
        if !self.is_end() && !self.is_break() {
            return Err(self.problem("did not find expected comment or line break"));
        }
        self.skip_break();
        Ok(())
    }

    /// The text from an offset up to here.
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// True at `---` or `...` at the start of a line.
    fn is_document_indicator(&self) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.column == 0 && (rest.starts_with(b"---") || rest.starts_with(b"...")) && self.is_blank_or_end(3)
    }

    fn push(&mut self, sign: YamlTokenKind<'a>, position: Position) {
        self.queue.push_back(YamlToken { sign, position });
    }

    /// Consumes an indicator of `width` characters.
    fn push_indicator(&mut self, sign: YamlTokenKind<'a>, width: usize) {
        let position = self.position();
        for _ in 0..width {
            self.skip();
        }
        self.push(sign, position);
    }

    /// Queues the next token, or several where blocks open or close.
    fn fetch(&mut self) -> Result<(), Error> {
        self.skip_to_token();
        self.close_blocks(Some(self.column));
        if self.is_end() {
            return self.end();
        }
        if self.column == 0 && self.peek_byte() == b'%' {
            self.end_block_context()?;
            let position = self.position();
            let sign = self.directive()?;
            self.push(sign, position);
            return Ok(());
        }
        if self.is_document_indicator() {
            self.end_block_context()?;
            let start = self.peek_byte() == b'-';
            self.push_indicator(
                if start { YamlTokenKind::DocumentStart } else { YamlTokenKind::DocumentEnd },
                3,
            );
            return Ok(());
        }
        match self.peek_byte() {
            b'[' => self.flow_start(YamlTokenKind::FlowList),
            b'{' => self.flow_start(YamlTokenKind::FlowMap),
            b']' => self.flow_end(YamlTokenKind::FlowListEnd),
            b'}' => self.flow_end(YamlTokenKind::FlowMapEnd),
            b',' => {
                self.forget_key()?;
                self.key_allowed = true;
                self.push_indicator(YamlTokenKind::FlowEntry, 1);
                Ok(())
            }
            b'-' if self.is_blank_or_end(1) => self.block_entry(),
            b'?' if self.in_flow() || self.is_blank_or_end(1) => self.key(),
            b':' if self.in_flow() || self.is_blank_or_end(1) => self.value(),
            b'*' | b'&' => self.scalar_token(Self::anchor),
            b'!' => self.scalar_token(Self::tag),
            b'|' | b'>' if !self.in_flow() => {
                self.forget_key()?;
                self.key_allowed = true;
                let position = self.position();
                let sign = self.block_scalar()?;
                self.push(sign, position);
                Ok(())
            }
            b'\'' | b'"' => self.scalar_token(Self::quoted),
            b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t' => {
                Err(self.problem("found character that cannot start any token"))
            }
            _ => self.scalar_token(Self::plain),
        }
    }

    /// Queues a token that may begin a key.
    fn scalar_token(&mut self, scan: fn(&mut Self) -> Result<YamlTokenKind<'a>, Error>) -> Result<(), Error> {
        self.save_key()?;
        self.key_allowed = false;
        let position = self.position();
        let sign = scan(self)?;
        self.push(sign, position);
        Ok(())
    }

    fn skip_to_token(&mut self) {
        loop {
            // Tabs separate tokens but do not indent.
            while self.peek_byte() == b' '
                || (self.peek_byte() == b'\t' && (self.in_flow() || !self.key_allowed))
            {
                self.skip();
            }
            self.skip_comment();
            if !self.is_break() {
                return;
            }
            self.skip_break();
            if !self.in_flow() {
                self.key_allowed = true;
            }
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.column != 0 {
            self.column = 0;
            self.line += 1;
        }
        self.end_block_context()?;
        self.push(YamlTokenKind::StreamEnd, self.position());
        Ok(())
    }

    fn end_block_context(&mut self) -> Result<(), Error> {
        self.close_blocks(None);
        self.forget_key()?;
        self.key_allowed = false;
        Ok(())
    }

    /// Opens a block at `column` if that is deeper than the innermost one. Its token is inserted before token number
    /// `before`.
    fn open_block(
        &mut self,
        column: usize,
        sign: YamlTokenKind<'a>,
        position: Position,
        before: Option<usize>,
    ) {
        if self.in_flow() || self.indent.is_some_and(|indent| indent >= column) {
            return;
        }
        self.indents.push(self.indent.replace(column));
        let at = before.map_or(self.queue.len(), |number| number.saturating_sub(self.taken));
        self.queue.insert(at.min(self.queue.len()), YamlToken { sign, position });
    }

    /// Closes the blocks deeper than `column`; all blocks if it is `None`.
    fn close_blocks(&mut self, column: Option<usize>) {
        while !self.in_flow() && self.indent > column {
            self.push(YamlTokenKind::BlockEnd, self.position());
            self.indent = self.indents.pop().unwrap_or_default();
        }
    }

    /// True if a possible key can still become one.
    fn key_is_valid(&mut self, level: usize) -> Result<bool, Error> {
        let Some(slot) = self.keys.get_mut(level) else { return Ok(false) };
        let Some(key) = *slot else { return Ok(false) };
        if key.position.line == self.line && key.index + MAX_KEY >= self.index {
            return Ok(true);
        }
        *slot = None;
        if key.required { Err(self.problem("could not find expected ':'")) } else { Ok(false) }
    }

    /// Records that a key may begin here.
    fn save_key(&mut self) -> Result<(), Error> {
        if !self.key_allowed {
            return Ok(());
        }
        self.forget_key()?;
        let key = PossibleKey {
            token: self.taken + self.queue.len(),
            required: !self.in_flow() && self.indent == Some(self.column),
            position: self.position(),
            index: self.index,
        };
        if let Some(slot) = self.keys.last_mut() {
            *slot = Some(key);
        }
        Ok(())
    }

    fn forget_key(&mut self) -> Result<(), Error> {
        match self.keys.last_mut().and_then(Option::take) {
            Some(key) if key.required => Err(self.problem("could not find expected ':'")),
            _ => Ok(()),
        }
    }

    fn flow_start(&mut self, sign: YamlTokenKind<'a>) -> Result<(), Error> {
        self.save_key()?;
        self.keys.push(None);
        self.key_allowed = true;
        self.push_indicator(sign, 1);
        Ok(())
    }

    fn flow_end(&mut self, sign: YamlTokenKind<'a>) -> Result<(), Error> {
        self.forget_key()?;
        if self.in_flow() {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.push_indicator(sign, 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), Error> {
        if !self.in_flow() {
            if !self.key_allowed {
                return Err(self.problem("block sequence entries are not allowed in this context"));
            }
            self.open_block(self.column, YamlTokenKind::BlockList, self.position(), None);
        }
        self.forget_key()?;
        self.key_allowed = true;
        self.push_indicator(YamlTokenKind::BlockEntry, 1);
        Ok(())
    }

    /// Scans the indicator `?` of a key.
    fn key(&mut self) -> Result<(), Error> {
        if !self.in_flow() {
            if !self.key_allowed {
                return Err(self.problem("mapping keys are not allowed in this context"));
            }
            self.open_block(self.column, YamlTokenKind::BlockMap, self.position(), None);
        }
        self.forget_key()?;
        self.key_allowed = !self.in_flow();
        self.push_indicator(YamlTokenKind::Key, 1);
        Ok(())
    }

    /// Scans the colon of a value.
    fn value(&mut self) -> Result<(), Error> {
        let level = self.keys.len() - 1;
        let valid = self.key_is_valid(level)?;
        match self.keys.last_mut().and_then(Option::take) {
            Some(key) if valid => {
                let at = key.token.saturating_sub(self.taken).min(self.queue.len());
                self.queue.insert(at, YamlToken { sign: YamlTokenKind::Key, position: key.position });
                self.open_block(
                    key.position.column - 1,
                    YamlTokenKind::BlockMap,
                    key.position,
                    Some(key.token),
                );
                self.key_allowed = false;
            }
            _ => {
                if !self.in_flow() {
                    if !self.key_allowed {
                        return Err(self.problem("mapping values are not allowed in this context"));
                    }
                    self.open_block(self.column, YamlTokenKind::BlockMap, self.position(), None);
                }
                self.key_allowed = !self.in_flow();
            }
        }
        self.push_indicator(YamlTokenKind::Value, 1);
        Ok(())
    }
}
