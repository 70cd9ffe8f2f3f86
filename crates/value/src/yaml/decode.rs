//! Decodes nodes into a [`Value`]: resolves aliases and merge keys, converts keys to strings, and reports repeated
//! keys.

use std::collections::HashSet;

use super::nodes::{UnresolvedScalar, YamlNodeId, YamlNodeKind, YamlNodes, too_deep};
use super::resolve::{self, ResolvedScalar};
use super::{Error, Position, problem};
use crate::{Map, Str, Value, json, write};

/// Upper bound of reported repeated keys.
const MAX_DUPLICATES: usize = 100;

/// Upper bound of text, in bytes, that aliases add to a document.
const MAX_ALIASED_BYTES: usize = 4 << 20;

/// A decoded document with its repeated keys.
pub(super) struct DecodedYaml {
    pub(super) value: Value,
    /// Dotted paths of repeated keys.
    pub(super) duplicates: Vec<String>,
    /// Error message of Kubernetes' strict reader about repeated keys.
    pub(super) strict: Option<String>,
}

pub(super) fn document(nodes: &YamlNodes<'_>, deepest: usize) -> Result<DecodedYaml, Error> {
    let mut decoder = Decoder {
        nodes,
        steps: 1, // the document counts as one
        aliased_steps: 0,
        aliased_bytes: 0,
        aliases: Vec::new(),
        depth: 0,
        deepest,
        duplicates: Vec::new(),
        repeated: Vec::new(),
    };
    let value = decoder.value(nodes.root)?;
    let strict = if decoder.repeated.is_empty() {
        None
    } else {
        Some(format!("yaml: unmarshal errors:\n  {}", decoder.repeated.join("\n  ")))
    };
    Ok(DecodedYaml { value, duplicates: decoder.duplicates, strict })
}

/// Collects the entries of a mapping; the last entry of a key wins.
#[derive(Default)]
struct MappingEntries {
    entries: Vec<(Str, Value)>,
    /// The keys, once there are more than [`MAX_SCANNED_KEYS`].
    keys: HashSet<Str>,
}

/// With more keys than this, a hash set finds repeated keys.
const MAX_SCANNED_KEYS: usize = 16;

impl MappingEntries {
    fn contains(&self, key: &Str) -> bool {
        if self.keys.is_empty() {
            self.entries.iter().any(|(known, _)| known == key)
        } else {
            self.keys.contains(key)
        }
    }

    fn push(&mut self, key: Str, value: Value) {
        if !self.keys.is_empty() {
            self.keys.insert(key.clone());
        }
        self.entries.push((key, value));
        if self.keys.is_empty() && self.entries.len() == MAX_SCANNED_KEYS {
            self.keys = self.entries.iter().map(|(key, _)| key.clone()).collect();
        }
    }
}

struct Decoder<'n, 'a> {
    nodes: &'n YamlNodes<'a>,
    /// Number of decoded nodes, and of those reached through an alias.
    steps: usize,
    aliased_steps: usize,
    aliased_bytes: usize,
    /// Targets of the aliases being followed, to detect cycles.
    aliases: Vec<YamlNodeId>,
    depth: usize,
    deepest: usize,
    duplicates: Vec<String>,
    repeated: Vec<String>,
}

impl<'n, 'a> Decoder<'n, 'a> {
    fn error(position: Position, message: impl AsRef<str>) -> Error {
        Error::new(format!("yaml: {}", message.as_ref()), position)
    }

    fn node(&self, id: YamlNodeId) -> Result<(&'n YamlNodeKind<'a>, Position), Error> {
        match self.nodes.get(id) {
            Some(node) => Ok((&node.kind, node.position)),
            None => Err(Self::error(Position::START, "unknown node")),
        }
    }

    /// Counts a node and checks goyaml's limit: aliases may make up most of a small document, but little of a large
    /// one.
    fn step(&mut self, position: Position) -> Result<(), Error> {
        self.steps += 1;
        if !self.aliases.is_empty() {
            self.aliased_steps += 1;
        }
        if self.aliased_steps > 100 && self.steps > 1000 {
            #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
            let (aliased, steps) = (self.aliased_steps as f64, self.steps as f64);
            if aliased / steps > allowed_alias_ratio(steps) {
                return Err(excessive(position));
            }
        }
        Ok(())
    }

    fn value(&mut self, id: YamlNodeId) -> Result<Value, Error> {
        let (kind, position) = self.node(id)?;
        self.step(position)?;
        match kind {
            YamlNodeKind::Scalar(text) => {
                let scalar = self.scalar(text, position)?;
                scalar_value(scalar).map_err(|message| Error::new(message, position))
            }
            YamlNodeKind::Alias(name, target) => {
                self.follow(id, name, position, |decoder| decoder.value(*target))
            }
            YamlNodeKind::List(items) => {
                self.enter(position)?;
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let known = self.duplicates.len();
                    list.push(self.value(*item)?);
                    self.prefix(known, &format!("[{index}]"));
                }
                self.depth -= 1;
                Ok(Value::List(list))
            }
            YamlNodeKind::Map(_) => {
                let mut entries = MappingEntries::default();
                self.mapping(id, &mut entries)?;
                Ok(Value::Map(Map::from_entries(entries.entries).0))
            }
        }
    }

    fn enter(&mut self, position: Position) -> Result<(), Error> {
        if self.depth == self.deepest {
            return Err(too_deep(position, self.deepest));
        }
        self.depth += 1;
        Ok(())
    }

    fn follow<T>(
        &mut self,
        alias: YamlNodeId,
        name: &str,
        position: Position,
        inner: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.aliases.contains(&alias) {
            return Err(Self::error(position, format!("anchor '{name}' value contains itself")));
        }
        if self.aliases.len() == self.deepest {
            return Err(too_deep(position, self.deepest));
        }
        self.aliases.push(alias);
        let result = inner(self);
        self.aliases.pop();
        result
    }

    fn mapping(&mut self, id: YamlNodeId, entries: &mut MappingEntries) -> Result<(), Error> {
        let (kind, position) = self.node(id)?;
        let YamlNodeKind::Map(pairs) = kind else {
            return Err(wants_map(position));
        };
        self.enter(position)?;
        for (key_id, value_id) in pairs {
            let (key_kind, key_position) = self.node(*key_id)?;
            if is_merge(key_kind) {
                self.merge(*value_id, entries)?;
                continue;
            }
            let key = self.key(*key_id)?;
            let known = self.duplicates.len();
            let value = self.value(*value_id)?;
            let name = match key_name(&key) {
                Ok(name) => name,
                Err((kind, shown)) => {
                    let value = problem::go_syntax(&value);
                    let message =
                        format!("unsupported map key of type: {kind}, key: {shown}, value: {value}");
                    return Err(Error::new(message, key_position));
                }
            };
            if self.duplicates.len() > known {
                self.prefix(known, &name);
            }
            if entries.contains(&name) {
                self.repeated(&key, &name, *value_id);
            }
            entries.push(name, value);
        }
        self.depth -= 1;
        Ok(())
    }

    /// Merges the value of a merge key: a mapping, or a list of mappings of which the first has precedence.
    fn merge(&mut self, id: YamlNodeId, entries: &mut MappingEntries) -> Result<(), Error> {
        let (kind, position) = self.node(id)?;
        match kind {
            YamlNodeKind::List(items) => {
                items.iter().rev().try_for_each(|item| self.merge_map(*item, entries))
            }
            YamlNodeKind::Scalar(_) => Err(wants_map(position)),
            YamlNodeKind::Map(_) | YamlNodeKind::Alias(..) => self.merge_map(id, entries),
        }
    }

    fn merge_map(&mut self, id: YamlNodeId, entries: &mut MappingEntries) -> Result<(), Error> {
        let (kind, position) = self.node(id)?;
        self.step(position)?;
        match kind {
            YamlNodeKind::Alias(name, target) => self.follow(id, name, position, |decoder| {
                decoder.step(position)?;
                decoder.mapping(*target, entries)
            }),
            _ => self.mapping(id, entries),
        }
    }

    fn key(&mut self, id: YamlNodeId) -> Result<ResolvedScalar<'n>, Error> {
        let (kind, position) = self.node(id)?;
        match kind {
            YamlNodeKind::Scalar(text) => {
                self.step(position)?;
                self.scalar(text, position)
            }
            YamlNodeKind::Alias(name, target) => {
                self.step(position)?;
                self.follow(id, name, position, |decoder| decoder.key(*target))
            }
            YamlNodeKind::List(_) | YamlNodeKind::Map(_) => {
                let value = self.value(id)?;
                Err(Self::error(position, format!("invalid map key: {}", problem::go_syntax(&value))))
            }
        }
    }

    fn scalar(
        &mut self,
        text: &'n UnresolvedScalar<'a>,
        position: Position,
    ) -> Result<ResolvedScalar<'n>, Error> {
        if !self.aliases.is_empty() {
            self.aliased_bytes += text.text.len();
            if self.aliased_bytes > MAX_ALIASED_BYTES {
                return Err(excessive(position));
            }
        }
        let borrowed = std::borrow::Cow::Borrowed(&*text.text);
        match &text.tag {
            None if text.plain => Ok(resolve::plain(borrowed)),
            None => Ok(ResolvedScalar::Text(borrowed)),
            Some(tag) => resolve::tagged(tag, borrowed).map_err(|message| Self::error(position, message)),
        }
    }

    fn repeated(&mut self, key: &ResolvedScalar<'_>, name: &Str, value: YamlNodeId) {
        if self.duplicates.len() < MAX_DUPLICATES {
            self.duplicates.push(name.to_string());
        }
        if self.repeated.len() < MAX_DUPLICATES {
            let line = self.nodes.get(value).map_or(0, |node| node.position.line);
            let key = match key {
                ResolvedScalar::Text(text) => problem::go_quoted(text),
                _ => name.to_string(),
            };
            self.repeated.push(format!("line {line}: key {key} already set in map"));
        }
    }

    /// Prepends `part` to the paths of duplicates found inside a child.
    fn prefix(&mut self, known: usize, part: &str) {
        for path in self.duplicates.iter_mut().skip(known) {
            let dot = if path.starts_with('[') { "" } else { "." };
            *path = format!("{part}{dot}{path}");
        }
    }
}

/// True for the key `<<`, plain or tagged as a merge key.
pub(super) fn is_merge(kind: &YamlNodeKind<'_>) -> bool {
    match kind {
        YamlNodeKind::Scalar(text) if text.text == "<<" => {
            text.plain || text.tag.as_deref() == Some("tag:yaml.org,2002:merge")
        }
        _ => false,
    }
}

/// The name of a scalar as a JSON object key. The error holds its Go type and text, if it cannot be a key.
pub(super) fn key_name(key: &ResolvedScalar<'_>) -> Result<Str, (&'static str, String)> {
    Ok(match key {
        ResolvedScalar::Text(text) => Str::new(text),
        ResolvedScalar::Bool(b) => Str::new_static(if *b { "true" } else { "false" }),
        ResolvedScalar::Int(i) => Str::from(i.to_string()),
        #[expect(clippy::cast_possible_truncation, reason = "keys are printed with the precision of 32 bits")]
        ResolvedScalar::Float(f) => Str::from(resolve::go_float(&format!("{:e}", *f as f32))),
        ResolvedScalar::Null => return Err(("%!s(<nil>)", "<nil>".to_owned())),
        ResolvedScalar::UInt(u) => return Err(("uint64", format!("{u:#x}"))),
    })
}

/// The value of a scalar after a round trip through JSON, which does not distinguish number types.
fn scalar_value(scalar: ResolvedScalar<'_>) -> Result<Value, String> {
    Ok(match scalar {
        ResolvedScalar::Null => Value::Null,
        ResolvedScalar::Bool(b) => Value::Bool(b),
        ResolvedScalar::Int(i) => Value::Int(i),
        #[expect(clippy::cast_precision_loss, reason = "integers above i64 are floats in JSON")]
        ResolvedScalar::UInt(u) => Value::Float(u as f64),
        ResolvedScalar::Float(f) if f.is_finite() => {
            json::parse(write::float(f).as_bytes()).unwrap_or(Value::Float(f))
        }
        ResolvedScalar::Float(f) => {
            let word = if f.is_nan() {
                "NaN"
            } else if f > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            return Err(format!("json: unsupported value: {word}"));
        }
        ResolvedScalar::Text(text) => Value::String(Str::new(text)),
    })
}

fn wants_map(position: Position) -> Error {
    let message = "yaml: map merge requires map or sequence of maps as the value";
    Error::new(message.to_owned(), position)
}

fn excessive(position: Position) -> Error {
    Error::new("yaml: document contains excessive aliasing".to_owned(), position)
}

/// goyaml's limit: 99 % aliases up to 400,000 steps, falling to 10 % at 4,000,000.
fn allowed_alias_ratio(steps: f64) -> f64 {
    const LOW: f64 = 400_000.0;
    const HIGH: f64 = 4_000_000.0;
    if steps <= LOW {
        0.99
    } else if steps >= HIGH {
        0.10
    } else {
        0.99 - 0.89 * ((steps - LOW) / (HIGH - LOW))
    }
}
