//! Parses tokens into a tree of nodes, with aliases unresolved.

use std::borrow::Cow;
use std::collections::HashMap;

use super::scan::{Scanner, YamlTokenKind};
use super::{Error, Position, problem};

/// Upper bound of nodes in a document.
const MAX_NODES: usize = 1 << 20;

/// Index of a node in its document.
pub(super) type YamlNodeId = usize;

pub(super) struct YamlNodes<'a> {
    nodes: Vec<YamlNode<'a>>,
    pub(super) root: YamlNodeId,
}

pub(super) struct YamlNode<'a> {
    pub(super) position: Position,
    pub(super) kind: YamlNodeKind<'a>,
}

pub(super) enum YamlNodeKind<'a> {
    Scalar(UnresolvedScalar<'a>),
    List(Vec<YamlNodeId>),
    Map(Vec<(YamlNodeId, YamlNodeId)>),
    /// Refers to another node, possibly to one that contains the alias.
    Alias(&'a str, YamlNodeId),
}

/// A scalar before its type is resolved.
pub(super) struct UnresolvedScalar<'a> {
    pub(super) text: Cow<'a, str>,
    /// The tag in its long form.
    pub(super) tag: Option<Box<str>>,
    /// Written without quotes, and not as a block scalar.
    pub(super) plain: bool,
}

impl<'a> YamlNodes<'a> {
    pub(super) fn get(&self, id: YamlNodeId) -> Option<&YamlNode<'a>> {
        self.nodes.get(id)
    }
}

/// Parses the first document, up to `deepest` levels deep; `None` if there is no document.
pub(super) fn first(text: &str, deepest: usize) -> Result<Option<YamlNodes<'_>>, Error> {
    let mut parser = YamlParser {
        scanner: Scanner::new(text),
        nodes: Vec::new(),
        anchors: HashMap::new(),
        tags: Vec::new(),
        depth: 0,
        deepest,
    };
    let root = parser.document()?;
    Ok(root.map(|root| YamlNodes { nodes: parser.nodes, root }))
}

/// The context of a node, which decides the syntax it may have.
#[derive(Clone, Copy, PartialEq)]
enum NodeContext {
    /// In a flow collection, where block syntax is not allowed.
    Flow,
    Block,
    /// Value of a block mapping's key, where a list need not be indented.
    BlockEntry,
}

struct YamlParser<'a> {
    scanner: Scanner<'a>,
    nodes: Vec<YamlNode<'a>>,
    /// The last node with each anchor.
    anchors: HashMap<&'a str, YamlNodeId>,
    /// Tag handles with their prefixes.
    tags: Vec<(String, String)>,
    depth: usize,
    deepest: usize,
}

impl<'a> YamlParser<'a> {
    /// Kind of the next token.
    fn sign(&mut self) -> Result<&YamlTokenKind<'a>, Error> {
        self.scanner.peek().map(|token| &token.sign)
    }

    /// Position of the next token.
    fn position(&mut self) -> Result<Position, Error> {
        self.scanner.peek().map(|token| token.position)
    }

    fn skip(&mut self) -> Result<Position, Error> {
        self.scanner.next().map(|token| token.position)
    }

    /// Consumes the next token if it is of this kind.
    fn skip_if(&mut self, sign: &YamlTokenKind<'a>) -> Result<Option<Position>, Error> {
        if self.sign()? == sign { self.skip().map(Some) } else { Ok(None) }
    }

    /// The error for an unexpected token.
    fn unexpected<T>(&mut self, words: &str) -> Result<T, Error> {
        let position = self.position()?;
        Err(problem::parser(position, words))
    }

    fn document(&mut self) -> Result<Option<YamlNodeId>, Error> {
        let explicit = match self.sign()? {
            YamlTokenKind::StreamEnd => return Ok(None),
            YamlTokenKind::Version(..)
            | YamlTokenKind::TagDirective { .. }
            | YamlTokenKind::DocumentStart => true,
            _ => false,
        };
        self.directives()?;
        if explicit && self.skip_if(&YamlTokenKind::DocumentStart)?.is_none() {
            return self.unexpected("did not find expected <document start>");
        }
        let position = self.position()?;
        let root = match self.sign()? {
            YamlTokenKind::Version(..)
            | YamlTokenKind::TagDirective { .. }
            | YamlTokenKind::DocumentStart
            | YamlTokenKind::DocumentEnd
            | YamlTokenKind::StreamEnd
                if explicit =>
            {
                self.empty(position)?
            }
            _ => self.node(NodeContext::Block)?,
        };
        self.sign()?; // what follows has to be a token, whatever it is
        Ok(Some(root))
    }

    fn directives(&mut self) -> Result<(), Error> {
        let mut version = false;
        loop {
            let position = self.position()?;
            match self.sign()? {
                YamlTokenKind::Version(..) if version => {
                    return Err(problem::parser(position, "found duplicate %YAML directive"));
                }
                YamlTokenKind::Version(1, 1) => version = true,
                YamlTokenKind::Version(..) => {
                    return Err(problem::parser(position, "found incompatible YAML document"));
                }
                YamlTokenKind::TagDirective { handle, prefix } => {
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

    fn add(&mut self, kind: YamlNodeKind<'a>, position: Position) -> Result<YamlNodeId, Error> {
        let id = self.nodes.len();
        if id == MAX_NODES {
            return Err(Error::new(format!("yaml: exceeded max number of nodes of {MAX_NODES}"), position));
        }
        self.nodes.push(YamlNode { position, kind });
        Ok(id)
    }

    /// A node without content.
    fn empty(&mut self, position: Position) -> Result<YamlNodeId, Error> {
        self.add(
            YamlNodeKind::Scalar(UnresolvedScalar { text: Cow::Borrowed(""), tag: None, plain: true }),
            position,
        )
    }

    fn node(&mut self, context: NodeContext) -> Result<YamlNodeId, Error> {
        let position = self.position()?;
        if let YamlTokenKind::Alias(name) = *self.sign()? {
            let Some(target) = self.anchors.get(name).copied() else {
                return Err(Error::new(format!("yaml: unknown anchor '{name}' referenced"), position));
            };
            self.skip()?;
            return self.add(YamlNodeKind::Alias(name, target), position);
        }
        let (anchor, tag) = self.properties()?;
        let nothing = anchor.is_some() || tag.is_some();
        let kind = match self.sign()? {
            YamlTokenKind::Scalar { .. } => {
                let YamlTokenKind::Scalar { text, plain } = self.scanner.next()?.sign else {
                    return self.unexpected("did not find expected node content");
                };
                let plain = plain && tag.is_none() || tag.as_deref() == Some("!");
                YamlNodeKind::Scalar(UnresolvedScalar { text, tag, plain })
            }
            YamlTokenKind::FlowList => YamlNodeKind::List(Vec::new()),
            YamlTokenKind::FlowMap => YamlNodeKind::Map(Vec::new()),
            YamlTokenKind::BlockList if context != NodeContext::Flow => YamlNodeKind::List(Vec::new()),
            YamlTokenKind::BlockMap if context != NodeContext::Flow => YamlNodeKind::Map(Vec::new()),
            YamlTokenKind::BlockEntry if context == NodeContext::BlockEntry => YamlNodeKind::List(Vec::new()),
            _ if nothing => {
                let plain = tag.is_none();
                YamlNodeKind::Scalar(UnresolvedScalar { text: Cow::Borrowed(""), tag, plain })
            }
            _ => return self.unexpected("did not find expected node content"),
        };
        let scalar = matches!(kind, YamlNodeKind::Scalar(_));
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
                YamlTokenKind::Anchor(name) if anchor.is_none() => anchor = Some(*name),
                YamlTokenKind::Tag { .. } if tag.is_none() => {}
                _ => break,
            }
            let token = self.scanner.next()?;
            if let YamlTokenKind::Tag { handle, suffix } = token.sign {
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

    fn collection(&mut self, id: YamlNodeId, position: Position) -> Result<(), Error> {
        if self.depth == self.deepest {
            return Err(too_deep(position, self.deepest));
        }
        self.depth += 1;
        let kind = match self.sign()? {
            YamlTokenKind::BlockEntry => YamlNodeKind::List(self.unindented_list()?),
            YamlTokenKind::BlockList => YamlNodeKind::List(self.block_list()?),
            YamlTokenKind::BlockMap => YamlNodeKind::Map(self.block_map()?),
            YamlTokenKind::FlowList => YamlNodeKind::List(self.flow_list()?),
            _ => YamlNodeKind::Map(self.flow_map()?),
        };
        self.depth -= 1;
        if let Some(node) = self.nodes.get_mut(id) {
            node.kind = kind;
        }
        Ok(())
    }

    /// The next node, or an empty one at `position` if one of `ends` follows.
    fn node_unless(
        &mut self,
        ends: &[YamlTokenKind<'static>],
        context: NodeContext,
        position: Position,
    ) -> Result<YamlNodeId, Error> {
        if ends.contains(self.sign()?) {
            let position = Position { column: position.column + 1, ..position };
            return self.empty(position);
        }
        self.node(context)
    }

    /// The value after a key; an empty node if it is missing.
    fn value(&mut self, ends: &[YamlTokenKind<'static>], context: NodeContext) -> Result<YamlNodeId, Error> {
        if let Some(position) = self.skip_if(&YamlTokenKind::Value)? {
            return self.node_unless(ends, context, position);
        }
        let position = self.position()?;
        self.empty(position)
    }

    fn block_list(&mut self) -> Result<Vec<YamlNodeId>, Error> {
        let mut items = Vec::new();
        self.skip()?;
        while let Some(position) = self.skip_if(&YamlTokenKind::BlockEntry)? {
            items.push(self.node_unless(
                &[YamlTokenKind::BlockEntry, YamlTokenKind::BlockEnd],
                NodeContext::Block,
                position,
            )?);
        }
        if self.skip_if(&YamlTokenKind::BlockEnd)?.is_none() {
            return self.unexpected("did not find expected '-' indicator");
        }
        Ok(items)
    }

    fn unindented_list(&mut self) -> Result<Vec<YamlNodeId>, Error> {
        const ENDS: &[YamlTokenKind<'static>] =
            &[YamlTokenKind::BlockEntry, YamlTokenKind::Key, YamlTokenKind::Value, YamlTokenKind::BlockEnd];
        let mut items = Vec::new();
        while let Some(position) = self.skip_if(&YamlTokenKind::BlockEntry)? {
            items.push(self.node_unless(ENDS, NodeContext::Block, position)?);
        }
        Ok(items)
    }

    fn block_map(&mut self) -> Result<Vec<(YamlNodeId, YamlNodeId)>, Error> {
        const ENDS: &[YamlTokenKind<'static>] =
            &[YamlTokenKind::Key, YamlTokenKind::Value, YamlTokenKind::BlockEnd];
        let mut entries = Vec::new();
        self.skip()?;
        while let Some(position) = self.skip_if(&YamlTokenKind::Key)? {
            let key = self.node_unless(ENDS, NodeContext::BlockEntry, position)?;
            entries.push((key, self.value(ENDS, NodeContext::BlockEntry)?));
        }
        if self.skip_if(&YamlTokenKind::BlockEnd)?.is_none() {
            return self.unexpected("did not find expected key");
        }
        Ok(entries)
    }

    fn flow_list(&mut self) -> Result<Vec<YamlNodeId>, Error> {
        let mut items = Vec::new();
        self.skip()?;
        while self.skip_if(&YamlTokenKind::FlowListEnd)?.is_none() {
            if !items.is_empty() {
                if self.skip_if(&YamlTokenKind::FlowEntry)?.is_none() {
                    return self.unexpected("did not find expected ',' or ']'");
                }
                if *self.sign()? == YamlTokenKind::FlowListEnd {
                    continue;
                }
            }
            let item = match self.skip_if(&YamlTokenKind::Key)? {
                Some(position) => self.flow_pair(position)?,
                None => self.node(NodeContext::Flow)?,
            };
            items.push(item);
        }
        Ok(items)
    }

    /// A mapping of one entry in a flow list: `[key: value]`.
    fn flow_pair(&mut self, position: Position) -> Result<YamlNodeId, Error> {
        let id = self.add(YamlNodeKind::Map(Vec::new()), position)?;
        let key = match self.sign()? {
            // libyaml consumes this token.
            YamlTokenKind::Value | YamlTokenKind::FlowEntry | YamlTokenKind::FlowListEnd => {
                let position = self.skip()?;
                self.empty(position)?
            }
            _ => self.node(NodeContext::Flow)?,
        };
        let value = self.value(&[YamlTokenKind::FlowEntry, YamlTokenKind::FlowListEnd], NodeContext::Flow)?;
        if let Some(node) = self.nodes.get_mut(id) {
            node.kind = YamlNodeKind::Map(vec![(key, value)]);
        }
        Ok(id)
    }

    fn flow_map(&mut self) -> Result<Vec<(YamlNodeId, YamlNodeId)>, Error> {
        const ENDS: &[YamlTokenKind<'static>] =
            &[YamlTokenKind::Value, YamlTokenKind::FlowEntry, YamlTokenKind::FlowMapEnd];
        let mut entries = Vec::new();
        self.skip()?;
        while self.skip_if(&YamlTokenKind::FlowMapEnd)?.is_none() {
            if !entries.is_empty() {
                if self.skip_if(&YamlTokenKind::FlowEntry)?.is_none() {
                    return self.unexpected("did not find expected ',' or '}'");
                }
                if *self.sign()? == YamlTokenKind::FlowMapEnd {
                    continue;
                }
            }
            if let Some(position) = self.skip_if(&YamlTokenKind::Key)? {
                let key = self.node_unless(ENDS, NodeContext::Flow, position)?;
                entries.push((
                    key,
                    self.value(&[YamlTokenKind::FlowEntry, YamlTokenKind::FlowMapEnd], NodeContext::Flow)?,
                ));
            } else {
                let key = self.node(NodeContext::Flow)?;
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
