//! Source positions of the fields of a YAML document, for messages about configuration files.

use super::Position;
use super::decode::{is_merge, key_name};
use super::nodes::{UnresolvedScalar, YamlNodeId, YamlNodeKind, YamlNodes};
use super::resolve::{self, ResolvedScalar};
use crate::{Path, Segment, Str};

/// Positions of a field. For the root and list items, which have no key, both are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPosition {
    /// Start of the field's key.
    pub key: Position,
    /// Start of the field's value.
    pub value: Position,
}

/// Source positions of all fields of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    root: SpannedNode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SpannedNode {
    position: FieldPosition,
    children: SpannedChildren,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SpannedChildren {
    Nothing,
    List(Vec<SpannedNode>),
    /// Sorted by key, for binary search.
    Map(Vec<(Str, SpannedNode)>),
}

impl SpannedNode {
    fn new(position: Position) -> Self {
        SpannedNode {
            position: FieldPosition { key: position, value: position },
            children: SpannedChildren::Nothing,
        }
    }

    fn field(&self, name: &str) -> Option<&SpannedNode> {
        let SpannedChildren::Map(fields) = &self.children else { return None };
        let at = fields.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()?;
        fields.get(at).map(|(_, node)| node)
    }

    fn step(&self, segment: &Segment) -> Option<&SpannedNode> {
        match (segment, &self.children) {
            (Segment::Field(name) | Segment::Key(name), _) => self.field(name),
            (Segment::Index(index), SpannedChildren::List(items)) => items.get(*index),
            _ => None,
        }
    }

    /// Follows a textual path as far as possible; returns the node and the rest of the path.
    fn deepest_along<'t>(&self, path: &'t str) -> (&SpannedNode, &'t str) {
        let mut best = (self, path);
        let mut consider = |(node, rest): (_, &'t str)| {
            if rest.len() < best.1.len() {
                best = (node, rest);
            }
        };
        match &self.children {
            SpannedChildren::Nothing => {}
            SpannedChildren::List(items) => {
                let index = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                if let Some((index, rest)) = index
                    && let Some(node) = index.parse().ok().and_then(|index: usize| items.get(index))
                {
                    consider(node.deepest_along(rest));
                }
            }
            // Keys may contain dots and brackets, so every key that is a prefix of the path is tried.
            SpannedChildren::Map(fields) => {
                for (key, node) in fields {
                    if let Some(rest) = after_key(path, key) {
                        consider(node.deepest_along(rest));
                    }
                }
            }
        }
        best
    }
}

/// Strips `key`, `.key`, `[key]` or `["key"]` from the start of a path.
fn after_key<'t>(path: &'t str, key: &str) -> Option<&'t str> {
    if let Some(rest) = path.strip_prefix('[') {
        let rest = match rest.strip_prefix('"') {
            Some(rest) => rest.strip_prefix(key)?.strip_prefix('"')?,
            None => rest.strip_prefix(key)?,
        };
        return rest.strip_prefix(']');
    }
    let rest = path.strip_prefix('.').unwrap_or(path).strip_prefix(key)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

impl Spans {
    /// Position of the field at `path`; `None` if the document does not have it.
    pub fn locate(&self, path: &Path) -> Option<FieldPosition> {
        path.segments().iter().try_fold(&self.root, SpannedNode::step).map(|node| node.position)
    }

    /// Position of the field at a textual path (`spec.containers[0].name`, `data[my.key]`); `None` if the document
    /// does not have it.
    pub fn locate_text(&self, path: &str) -> Option<FieldPosition> {
        let (node, rest) = self.root.deepest_along(path);
        rest.is_empty().then_some(node.position)
    }

    /// Position of the field at a textual path, or of the innermost enclosing field that exists.
    pub fn nearest(&self, path: &str) -> FieldPosition {
        self.root.deepest_along(path).0.position
    }

    /// Positions of a document of which only the start is known.
    pub(super) fn at(position: Position) -> Self {
        Spans { root: SpannedNode::new(position) }
    }

    /// Adds `lines` to all line numbers.
    pub(super) fn shift(&mut self, lines: usize) {
        shift(&mut self.root, lines);
    }
}

fn shift(node: &mut SpannedNode, lines: usize) {
    node.position.key.line += lines;
    node.position.value.line += lines;
    match &mut node.children {
        SpannedChildren::Nothing => {}
        SpannedChildren::List(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        SpannedChildren::Map(fields) => fields.iter_mut().for_each(|(_, field)| shift(field, lines)),
    }
}

/// Positions of a decoded document; decoding has checked that its aliases are bounded and acyclic.
pub(super) fn of(nodes: &YamlNodes<'_>) -> Spans {
    Spans { root: spanned(nodes, nodes.root) }
}

fn spanned(nodes: &YamlNodes<'_>, id: YamlNodeId) -> SpannedNode {
    let Some(node) = nodes.get(id) else { return SpannedNode::new(Position::START) };
    let mut spanned_node = SpannedNode::new(node.position);
    spanned_node.children = match &node.kind {
        YamlNodeKind::Scalar(_) => SpannedChildren::Nothing,
        YamlNodeKind::Alias(_, target) => spanned(nodes, *target).children,
        YamlNodeKind::List(items) => {
            SpannedChildren::List(items.iter().map(|item| spanned(nodes, *item)).collect())
        }
        YamlNodeKind::Map(_) => {
            let mut fields = Vec::new();
            collect(nodes, id, &mut fields);
            fields.sort_by(|(a, _), (b, _)| a.cmp(b)); // stable: of equal keys the last stays last
            fields.dedup_by(|later, last| {
                let same = later.0 == last.0;
                if same {
                    std::mem::swap(later, last);
                }
                same
            });
            SpannedChildren::Map(fields)
        }
    };
    spanned_node
}

fn collect(nodes: &YamlNodes<'_>, id: YamlNodeId, fields: &mut Vec<(Str, SpannedNode)>) {
    let pairs = match nodes.get(id).map(|node| &node.kind) {
        Some(YamlNodeKind::Map(pairs)) => pairs,
        Some(YamlNodeKind::Alias(_, target)) => return collect(nodes, *target, fields),
        Some(YamlNodeKind::List(items)) => {
            return items.iter().rev().for_each(|item| collect(nodes, *item, fields));
        }
        _ => return,
    };
    for (key, value) in pairs {
        let Some(key_node) = nodes.get(*key) else { continue };
        if is_merge(&key_node.kind) {
            collect(nodes, *value, fields);
        } else if let Some(name) = name(nodes, *key) {
            let mut field = spanned(nodes, *value);
            field.position.key = key_node.position;
            fields.push((name, field));
        }
    }
}

fn name(nodes: &YamlNodes<'_>, key: YamlNodeId) -> Option<Str> {
    let scalar = match &nodes.get(key)?.kind {
        YamlNodeKind::Scalar(UnresolvedScalar { text, tag: None, plain: true }) => {
            resolve::plain(text.as_ref().into())
        }
        YamlNodeKind::Scalar(UnresolvedScalar { text, tag: None, .. }) => {
            ResolvedScalar::Text(text.as_ref().into())
        }
        YamlNodeKind::Scalar(UnresolvedScalar { text, tag: Some(tag), .. }) => {
            resolve::tagged(tag, text.as_ref().into()).ok()?
        }
        YamlNodeKind::Alias(_, target) => return name(nodes, *target),
        _ => return None,
    };
    key_name(&scalar).ok()
}
