//! From tokens to nodes: a tree in which aliases are still aliases.

use std::borrow::Cow;
use std::collections::HashMap;

use super::scan::{Scanner, Sign};
use super::{Error, Position, problem};

/// The most nodes a document may have.
const MAX_NODES: usize = 1 << 20;

/// The number of a node in its document.
pub(super) type Id = usize;

/// One document's nodes.
pub(super) struct Nodes<'a> {
    nodes: Vec<Node<'a>>,
    /// The outermost node.
    pub(super) root: Id,
}

pub(super) struct Node<'a> {
    pub(super) position: Position,
    pub(super) kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    Scalar(Unresolved<'a>),
    List(Vec<Id>),
    Map(Vec<(Id, Id)>),
    /// Stands for another node, which may be one it is inside of.
    Alias(&'a str, Id),
}

/// A scalar before resolution.
pub(super) struct Unresolved<'a> {
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

/// Reads the first document of `text`, not deeper than `deepest`; nothing if there is none.
pub(super) fn first(text: &str, deepest: usize) -> Result<Option<Nodes<'_>>, Error> {
    let mut parser = Parser {
        scanner: Scanner::new(text),
        nodes: Vec::new(),
        anchors: HashMap::new(),
        tags: Vec::new(),
        depth: 0,
        deepest,
    };
    let root = parser.document()?;
    Ok(root.map(|root| Nodes { nodes: parser.nodes, root }))
}

/// Where a node is, which decides what it may be.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In a flow collection: no blocks.
    Flow,
    Block,
    /// Below a key of a block, where a list need not be indented.
    BlockEntry,
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    nodes: Vec<Node<'a>>,
    /// The latest node of each anchor.
    anchors: HashMap<&'a str, Id>,
    /// Handles of tags and what they stand for.
    tags: Vec<(String, String)>,
    depth: usize,
    deepest: usize,
}

impl<'a> Parser<'a> {
    /// The next token's sign.
    fn sign(&mut self) -> Result<&Sign<'a>, Error> {
        self.scanner.peek().map(|token| &token.sign)
    }

    /// Where the next token is.
    fn position(&mut self) -> Result<Position, Error> {
        self.scanner.peek().map(|token| token.position)
    }

    fn skip(&mut self) -> Result<Position, Error> {
        self.scanner.next().map(|token| token.position)
    }

    /// Steps over the next token if it is this one.
    fn skip_if(&mut self, sign: &Sign<'a>) -> Result<Option<Position>, Error> {
        if self.sign()? == sign { self.skip().map(Some) } else { Ok(None) }
    }

    /// The error that the next token is not what is expected.
    fn unexpected<T>(&mut self, words: &str) -> Result<T, Error> {
        let position = self.position()?;
        Err(problem::parser(position, words))
    }

    fn document(&mut self) -> Result<Option<Id>, Error> {
        let explicit = match self.sign()? {
            Sign::StreamEnd => return Ok(None),
            Sign::Version(..) | Sign::TagDirective { .. } | Sign::DocumentStart => true,
            _ => false,
        };
        self.directives()?;
        if explicit && self.skip_if(&Sign::DocumentStart)?.is_none() {
            return self.unexpected("did not find expected <document start>");
        }
        let position = self.position()?;
        let root = match self.sign()? {
            Sign::Version(..)
            | Sign::TagDirective { .. }
            | Sign::DocumentStart
            | Sign::DocumentEnd
            | Sign::StreamEnd
                if explicit =>
            {
                self.empty(position)?
            }
            _ => self.node(Place::Block)?,
        };
        self.sign()?; // what follows has to be a token, whatever it is
        Ok(Some(root))
    }

    fn directives(&mut self) -> Result<(), Error> {
        let mut version = false;
        loop {
            let position = self.position()?;
            match self.sign()? {
                Sign::Version(..) if version => {
                    return Err(problem::parser(position, "found duplicate %YAML directive"));
                }
                Sign::Version(1, 1) => version = true,
                Sign::Version(..) => {
                    return Err(problem::parser(position, "found incompatible YAML document"));
                }
                Sign::TagDirective { handle, prefix } => {
                    let tag = (handle.clone(), prefix.clone());
                    if self.tags.iter().any(|(known, _)| *known == tag.0) {
                        return Err(problem::parser(position, "found duplicate %TAG directive"));
                    }
                    self.tags.push(tag);
                }
                _ => break,
            }
            self.skip()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            if !self.tags.iter().any(|(known, _)| known == handle) {
                self.tags.push((handle.to_owned(), prefix.to_owned()));
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: Kind<'a>, position: Position) -> Result<Id, Error> {
        let id = self.nodes.len();
        if id == MAX_NODES {
            return Err(Error::new(format!("yaml: exceeded max number of nodes of {MAX_NODES}"), position));
        }
        self.nodes.push(Node { position, kind });
        Ok(id)
    }

    /// A node of which nothing is written.
    fn empty(&mut self, position: Position) -> Result<Id, Error> {
        self.add(Kind::Scalar(Unresolved { text: Cow::Borrowed(""), tag: None, plain: true }), position)
    }

    fn node(&mut self, place: Place) -> Result<Id, Error> {
        let position = self.position()?;
        if let Sign::Alias(name) = *self.sign()? {
            let Some(target) = self.anchors.get(name).copied() else {
                return Err(Error::new(format!("yaml: unknown anchor '{name}' referenced"), position));
            };
            self.skip()?;
            return self.add(Kind::Alias(name, target), position);
        }
        let (anchor, tag) = self.properties()?;
        let nothing = anchor.is_some() || tag.is_some();
        let kind = match self.sign()? {
            Sign::Scalar { .. } => {
                let Sign::Scalar { text, plain } = self.scanner.next()?.sign else {
                    return self.unexpected("did not find expected node content");
                };
                let plain = plain && tag.is_none() || tag.as_deref() == Some("!");
                Kind::Scalar(Unresolved { text, tag, plain })
            }
            Sign::FlowList => Kind::List(Vec::new()),
            Sign::FlowMap => Kind::Map(Vec::new()),
            Sign::BlockList if place != Place::Flow => Kind::List(Vec::new()),
            Sign::BlockMap if place != Place::Flow => Kind::Map(Vec::new()),
            Sign::BlockEntry if place == Place::BlockEntry => Kind::List(Vec::new()),
            _ if nothing => {
                let plain = tag.is_none();
                Kind::Scalar(Unresolved { text: Cow::Borrowed(""), tag, plain })
            }
            _ => return self.unexpected("did not find expected node content"),
        };
        let scalar = matches!(kind, Kind::Scalar(_));
        let id = self.add(kind, position)?;
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, id);
        }
        if !scalar {
            self.collection(id, position)?;
        }
        Ok(id)
    }

    /// An anchor and a tag (in its long form), in either order.
    fn properties(&mut self) -> Result<(Option<&'a str>, Option<Box<str>>), Error> {
        let (mut anchor, mut tag) = (None, None);
        loop {
            match self.sign()? {
                Sign::Anchor(name) if anchor.is_none() => anchor = Some(*name),
                Sign::Tag { .. } if tag.is_none() => {}
                _ => break,
            }
            let token = self.scanner.next()?;
            if let Sign::Tag { handle, suffix } = token.sign {
                tag = Some((handle, suffix, token.position));
            }
        }
        let tag = match tag {
            Some((handle, suffix, position)) => Some(self.long_tag(&handle, &suffix, position)?),
            None => None,
        };
        Ok((anchor, tag))
    }

    fn long_tag(&self, handle: &str, suffix: &str, position: Position) -> Result<Box<str>, Error> {
        if handle.is_empty() {
            return Ok(suffix.into());
        }
        match self.tags.iter().find(|(known, _)| known == handle) {
            Some((_, prefix)) => Ok(format!("{prefix}{suffix}").into()),
            None => Err(problem::parser(position, "found undefined tag handle")),
        }
    }

    fn collection(&mut self, id: Id, position: Position) -> Result<(), Error> {
        if self.depth == self.deepest {
            return Err(too_deep(position, self.deepest));
        }
        self.depth += 1;
        let kind = match self.sign()? {
            Sign::BlockEntry => Kind::List(self.unindented_list()?),
            Sign::BlockList => Kind::List(self.block_list()?),
            Sign::BlockMap => Kind::Map(self.block_map()?),
            Sign::FlowList => Kind::List(self.flow_list()?),
            _ => Kind::Map(self.flow_map()?),
        };
        self.depth -= 1;
        if let Some(node) = self.nodes.get_mut(id) {
            node.kind = kind;
        }
        Ok(())
    }

    /// The node after a sign at `position`, unless one of `ends` follows.
    fn node_unless(&mut self, ends: &[Sign<'static>], place: Place, position: Position) -> Result<Id, Error> {
        if ends.contains(self.sign()?) {
            let position = Position { column: position.column + 1, ..position };
            return self.empty(position);
        }
        self.node(place)
    }

    /// What follows a key: a colon and a node, a colon alone, or nothing.
    fn value(&mut self, ends: &[Sign<'static>], place: Place) -> Result<Id, Error> {
        if let Some(position) = self.skip_if(&Sign::Value)? {
            return self.node_unless(ends, place, position);
        }
        let position = self.position()?;
        self.empty(position)
    }

    fn block_list(&mut self) -> Result<Vec<Id>, Error> {
        let mut items = Vec::new();
        self.skip()?;
        while let Some(position) = self.skip_if(&Sign::BlockEntry)? {
            items.push(self.node_unless(&[Sign::BlockEntry, Sign::BlockEnd], Place::Block, position)?);
        }
        if self.skip_if(&Sign::BlockEnd)?.is_none() {
            return self.unexpected("did not find expected '-' indicator");
        }
        Ok(items)
    }

    fn unindented_list(&mut self) -> Result<Vec<Id>, Error> {
        const ENDS: &[Sign<'static>] = &[Sign::BlockEntry, Sign::Key, Sign::Value, Sign::BlockEnd];
        let mut items = Vec::new();
        while let Some(position) = self.skip_if(&Sign::BlockEntry)? {
            items.push(self.node_unless(ENDS, Place::Block, position)?);
        }
        Ok(items)
    }

    fn block_map(&mut self) -> Result<Vec<(Id, Id)>, Error> {
        const ENDS: &[Sign<'static>] = &[Sign::Key, Sign::Value, Sign::BlockEnd];
        let mut entries = Vec::new();
        self.skip()?;
        while let Some(position) = self.skip_if(&Sign::Key)? {
            let key = self.node_unless(ENDS, Place::BlockEntry, position)?;
            entries.push((key, self.value(ENDS, Place::BlockEntry)?));
        }
        if self.skip_if(&Sign::BlockEnd)?.is_none() {
            return self.unexpected("did not find expected key");
        }
        Ok(entries)
    }

    fn flow_list(&mut self) -> Result<Vec<Id>, Error> {
        let mut items = Vec::new();
        self.skip()?;
        while self.skip_if(&Sign::FlowListEnd)?.is_none() {
            if !items.is_empty() {
                if self.skip_if(&Sign::FlowEntry)?.is_none() {
                    return self.unexpected("did not find expected ',' or ']'");
                }
                if *self.sign()? == Sign::FlowListEnd {
                    continue;
                }
            }
            let item = match self.skip_if(&Sign::Key)? {
                Some(position) => self.flow_pair(position)?,
                None => self.node(Place::Flow)?,
            };
            items.push(item);
        }
        Ok(items)
    }

    /// A map of one entry in a list, `[key: value]`.
    fn flow_pair(&mut self, position: Position) -> Result<Id, Error> {
        let id = self.add(Kind::Map(Vec::new()), position)?;
        let key = match self.sign()? {
            // libyaml swallows this token.
            Sign::Value | Sign::FlowEntry | Sign::FlowListEnd => {
                let position = self.skip()?;
                self.empty(position)?
            }
            _ => self.node(Place::Flow)?,
        };
        let value = self.value(&[Sign::FlowEntry, Sign::FlowListEnd], Place::Flow)?;
        if let Some(node) = self.nodes.get_mut(id) {
            node.kind = Kind::Map(vec![(key, value)]);
        }
        Ok(id)
    }

    fn flow_map(&mut self) -> Result<Vec<(Id, Id)>, Error> {
        const ENDS: &[Sign<'static>] = &[Sign::Value, Sign::FlowEntry, Sign::FlowMapEnd];
        let mut entries = Vec::new();
        self.skip()?;
        while self.skip_if(&Sign::FlowMapEnd)?.is_none() {
            if !entries.is_empty() {
                if self.skip_if(&Sign::FlowEntry)?.is_none() {
                    return self.unexpected("did not find expected ',' or '}'");
                }
                if *self.sign()? == Sign::FlowMapEnd {
                    continue;
                }
            }
            if let Some(position) = self.skip_if(&Sign::Key)? {
                let key = self.node_unless(ENDS, Place::Flow, position)?;
                entries.push((key, self.value(&[Sign::FlowEntry, Sign::FlowMapEnd], Place::Flow)?));
            } else {
                let key = self.node(Place::Flow)?;
                let position = self.position()?;
                entries.push((key, self.empty(position)?));
            }
        }
        Ok(entries)
    }
}

pub(super) fn too_deep(position: Position, deepest: usize) -> Error {
    Error::new(format!("yaml: exceeded max depth of {deepest}"), position)
}
