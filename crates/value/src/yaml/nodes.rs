//! From bytes to nodes: the text is checked, the parser's events become a tree in which aliases are still aliases.

use std::borrow::Cow;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::{Error, Position, problem};
use crate::json::MAX_DEPTH;

/// The longest text that is read.
const MAX_BYTES: usize = 16 << 20;

/// The most nodes a document may have.
const MAX_NODES: usize = 1 << 20;

/// The number of a node in its document.
pub(super) type Id = usize;

/// One document's nodes.
pub(super) struct Nodes<'a> {
    /// The text, for error messages.
    pub(super) text: &'a str,
    nodes: Vec<Node<'a>>,
    /// The outermost node.
    pub(super) root: Id,
}

pub(super) struct Node<'a> {
    pub(super) position: Position,
    pub(super) kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    Scalar(Text<'a>),
    List(Vec<Id>),
    Map(Vec<(Id, Id)>),
    /// Stands for another node, which may be one it is inside of.
    Alias(Id),
}

/// A scalar before resolution.
pub(super) struct Text<'a> {
    pub(super) text: Cow<'a, str>,
    /// The tag in its long form.
    pub(super) tag: Option<Box<str>>,
    /// Whether it is written without quotes (and is not a block).
    pub(super) plain: bool,
}

impl<'a> Nodes<'a> {
    pub(super) fn get(&self, id: Id) -> Option<&Node<'a>> {
        self.nodes.get(id)
    }
}

/// The text of `bytes`: UTF-8, or UTF-16 with a byte order mark.
pub(super) fn text(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::new(format!("yaml: input is longer than {MAX_BYTES} bytes"), Position::START));
    }
    let text = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest)?,
        [0xff, 0xfe, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes)?),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes)?),
        _ => utf8(bytes)?,
    };
    if let Some((at, _)) = text.char_indices().find(|(_, c)| !is_allowed(*c)) {
        let position = Position::at(text.as_bytes(), at);
        return Err(Error::new("yaml: control characters are not allowed".to_owned(), position));
    }
    Ok(text)
}

/// Whether a character may stand in YAML text.
fn is_allowed(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => true,
        '\u{a0}'.. => !matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}'),
        _ => false,
    }
}

fn utf8(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
        let at = error.valid_up_to();
        let words = match bytes.get(at) {
            Some(0x80..=0xbf | 0xf8..) | None => "invalid leading UTF-8 octet",
            Some(_) if error.error_len().is_none() => "incomplete UTF-8 octet sequence",
            Some(_) => "invalid trailing UTF-8 octet",
        };
        Error::new(format!("yaml: {words}"), Position::at(bytes, at))
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Error> {
    let units = bytes.as_chunks().0.iter().map(|pair| unit(*pair));
    match char::decode_utf16(units).collect() {
        Ok(text) if bytes.len().is_multiple_of(2) => Ok(text),
        Ok(_) => Err(Error::new("yaml: incomplete UTF-16 character".to_owned(), Position::START)),
        Err(_) => Err(Error::new("yaml: unexpected low surrogate area".to_owned(), Position::START)),
    }
}

/// Reads the first document of `text`; nothing if there is none.
pub(super) fn first(text: &str) -> Result<Option<Nodes<'_>>, Error> {
    problem::check_version(text)?;
    let mut builder = Builder { text, nodes: Vec::new(), anchors: Vec::new(), open: Vec::new(), root: None };
    let mut parser = Parser::new_from_str(text);
    loop {
        match parser.next_event() {
            None | Some(Ok((Event::StreamEnd | Event::DocumentEnd, _))) => break,
            Some(Ok((event, span))) => builder.event(event, span)?,
            Some(Err(error)) => return Err(problem::syntax(text, &error)),
        }
    }
    Ok(builder.root.map(|root| Nodes { text, nodes: builder.nodes, root }))
}

struct Builder<'a> {
    text: &'a str,
    nodes: Vec<Node<'a>>,
    /// The node of each anchor, by the parser's number, which only grows.
    anchors: Vec<(usize, Id)>,
    /// The lists and maps whose end is still to come, and the key that waits for its value.
    open: Vec<(Id, Option<Id>)>,
    root: Option<Id>,
}

impl<'a> Builder<'a> {
    fn event(&mut self, event: Event<'a>, span: Span) -> Result<(), Error> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| long_form(&tag));
                let plain = style == ScalarStyle::Plain && tag.is_none() || tag.as_deref() == Some("!");
                self.add(Kind::Scalar(Text { text, tag, plain }), anchor, span.start)?;
            }
            Event::Alias(anchor) => {
                let target = self.anchors.binary_search_by_key(&anchor, |(number, _)| *number).ok();
                let Some((_, target)) = target.and_then(|at| self.anchors.get(at)) else {
                    return Err(problem::unknown_anchor(self.text, Position::from(span.start)));
                };
                self.add(Kind::Alias(*target), 0, span.start)?;
            }
            Event::SequenceStart(anchor, _) => self.start(Kind::List(Vec::new()), anchor, span.start)?,
            Event::MappingStart(anchor, _) => self.start(Kind::Map(Vec::new()), anchor, span.start)?,
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, kind: Kind<'a>, anchor: usize, start: Marker) -> Result<(), Error> {
        if self.open.len() == MAX_DEPTH {
            return Err(too_deep(Position::from(start)));
        }
        let id = self.add(kind, anchor, start)?;
        self.open.push((id, None));
        Ok(())
    }

    fn add(&mut self, kind: Kind<'a>, anchor: usize, start: Marker) -> Result<Id, Error> {
        let position = Position::from(start);
        let id = self.nodes.len();
        if id == MAX_NODES {
            return Err(Error::new(format!("yaml: exceeded max number of nodes of {MAX_NODES}"), position));
        }
        self.nodes.push(Node { position, kind });
        if anchor != 0 {
            self.anchors.push((anchor, id));
        }
        let Some((parent, key)) = self.open.last_mut() else {
            self.root.get_or_insert(id);
            return Ok(id);
        };
        match self.nodes.get_mut(*parent).map(|node| &mut node.kind) {
            Some(Kind::List(items)) => items.push(id),
            Some(Kind::Map(entries)) => match key.take() {
                Some(key) => entries.push((key, id)),
                None => *key = Some(id),
            },
            _ => {}
        }
        Ok(id)
    }
}

pub(super) fn too_deep(position: Position) -> Error {
    Error::new(format!("yaml: exceeded max depth of {MAX_DEPTH}"), position)
}

fn long_form(tag: &Tag) -> Box<str> {
    format!("{}{}", tag.handle, tag.suffix).into()
}
