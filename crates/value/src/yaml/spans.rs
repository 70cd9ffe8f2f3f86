//! Where in the text each field is, for messages about the fields of configuration files.

use super::Position;
use super::decode::{is_merge, key_name};
use super::nodes::{Id, Kind, Nodes, Unresolved};
use super::resolve::{self, Scalar};
use crate::{Path, Segment, Str};

/// Where a field is. The root and the items of lists have no key: for them both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where its key begins.
    pub key: Position,
    /// Where its value begins.
    pub value: Position,
}

/// Where the fields of a document are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    root: Spot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Spot {
    place: Place,
    inside: Inside,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inside {
    Nothing,
    List(Vec<Spot>),
    /// Sorted by key.
    Map(Vec<(Str, Spot)>),
}

impl Spot {
    fn new(position: Position) -> Self {
        Spot { place: Place { key: position, value: position }, inside: Inside::Nothing }
    }

    fn field(&self, name: &str) -> Option<&Spot> {
        let Inside::Map(fields) = &self.inside else { return None };
        let at = fields.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()?;
        fields.get(at).map(|(_, spot)| spot)
    }

    fn step(&self, segment: &Segment) -> Option<&Spot> {
        match (segment, &self.inside) {
            (Segment::Field(name) | Segment::Key(name), _) => self.field(name),
            (Segment::Index(index), Inside::List(items)) => items.get(*index),
            _ => None,
        }
    }

    /// The deepest spot along a path in text, and what of the path is left.
    fn along<'t>(&self, path: &'t str) -> (&Spot, &'t str) {
        let mut best = (self, path);
        let mut consider = |(spot, rest): (_, &'t str)| {
            if rest.len() < best.1.len() {
                best = (spot, rest);
            }
        };
        match &self.inside {
            Inside::Nothing => {}
            Inside::List(items) => {
                let index = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                if let Some((index, rest)) = index
                    && let Some(spot) = index.parse().ok().and_then(|index: usize| items.get(index))
                {
                    consider(spot.along(rest));
                }
            }
            // A key may hold dots and brackets itself, so every key the path begins with is tried.
            Inside::Map(fields) => {
                for (key, spot) in fields {
                    if let Some(rest) = after_key(path, key) {
                        consider(spot.along(rest));
                    }
                }
            }
        }
        best
    }
}

/// What follows `key` at the beginning of a path: `key`, `.key`, `[key]` or `["key"]`.
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
    /// Where the field at `path` is, if the document has it.
    pub fn locate(&self, path: &Path) -> Option<Place> {
        path.segments().iter().try_fold(&self.root, Spot::step).map(|spot| spot.place)
    }

    /// Where the field at a path in text (`spec.containers[0].name`, `data[my.key]`) is, if the document has it.
    pub fn locate_text(&self, path: &str) -> Option<Place> {
        let (spot, rest) = self.root.along(path);
        rest.is_empty().then_some(spot.place)
    }

    /// Where the field at a path in text is, or the innermost thing around it that the document has.
    pub fn nearest(&self, path: &str) -> Place {
        self.root.along(path).0.place
    }

    /// A document of which only the beginning is known.
    pub(super) fn at(position: Position) -> Self {
        Spans { root: Spot::new(position) }
    }

    /// Moves everything down by as many lines.
    pub(super) fn shift(&mut self, lines: usize) {
        shift(&mut self.root, lines);
    }
}

fn shift(spot: &mut Spot, lines: usize) {
    spot.place.key.line += lines;
    spot.place.value.line += lines;
    match &mut spot.inside {
        Inside::Nothing => {}
        Inside::List(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        Inside::Map(fields) => fields.iter_mut().for_each(|(_, field)| shift(field, lines)),
    }
}

/// The spans of a document that was decoded, so that its aliases are known to be harmless.
pub(super) fn of(nodes: &Nodes<'_>) -> Spans {
    Spans { root: spot(nodes, nodes.root) }
}

fn spot(nodes: &Nodes<'_>, id: Id) -> Spot {
    let Some(node) = nodes.get(id) else { return Spot::new(Position::START) };
    let mut spot_here = Spot::new(node.position);
    spot_here.inside = match &node.kind {
        Kind::Scalar(_) => Inside::Nothing,
        Kind::Alias(_, target) => spot(nodes, *target).inside,
        Kind::List(items) => Inside::List(items.iter().map(|item| spot(nodes, *item)).collect()),
        Kind::Map(_) => {
            let mut fields = Vec::new();
            collect(nodes, id, &mut fields);
            fields.sort_by(|(a, _), (b, _)| a.cmp(b)); // stable: of equal keys the last stays last
            fields.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
            Inside::Map(fields)
        }
    };
    spot_here
}

fn collect(nodes: &Nodes<'_>, id: Id, fields: &mut Vec<(Str, Spot)>) {
    let pairs = match nodes.get(id).map(|node| &node.kind) {
        Some(Kind::Map(pairs)) => pairs,
        Some(Kind::Alias(_, target)) => return collect(nodes, *target, fields),
        Some(Kind::List(items)) => return items.iter().rev().for_each(|item| collect(nodes, *item, fields)),
        _ => return,
    };
    for (key, value) in pairs {
        let Some(key_node) = nodes.get(*key) else { continue };
        if is_merge(&key_node.kind) {
            collect(nodes, *value, fields);
        } else if let Some(name) = name(nodes, *key) {
            let mut field = spot(nodes, *value);
            field.place.key = key_node.position;
            fields.push((name, field));
        }
    }
}

fn name(nodes: &Nodes<'_>, key: Id) -> Option<Str> {
    let scalar = match &nodes.get(key)?.kind {
        Kind::Scalar(Unresolved { text, tag: None, plain: true }) => resolve::plain(text.as_ref().into()),
        Kind::Scalar(Unresolved { text, tag: None, .. }) => Scalar::Text(text.as_ref().into()),
        Kind::Scalar(Unresolved { text, tag: Some(tag), .. }) => {
            resolve::tagged(tag, text.as_ref().into()).ok()?
        }
        Kind::Alias(_, target) => return name(nodes, *target),
        _ => return None,
    };
    key_name(&scalar).ok()
}
