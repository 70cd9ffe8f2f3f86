//! Correlates parts of a new object with parts of the old one, for ratcheting: errors in unchanged values are ignored.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use value::{Value, write};

use super::node::SchemaNode;

/// A new value, the old value it corresponds to, and their schema.
#[derive(Clone, Debug)]
pub(crate) struct CorrelatedPair<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
    node: &'a SchemaNode,
    equal: Cell<Option<bool>>,
    /// The old items of a keyed list by their keys, indexed on first use.
    olds: OnceCell<Counterparts<'a>>,
}

impl<'a> CorrelatedPair<'a> {
    pub(crate) fn new(new: &'a Value, old: &'a Value, node: &'a SchemaNode) -> Self {
        CorrelatedPair { new, old, node, equal: Cell::new(None), olds: OnceCell::new() }
    }

    /// The pair at a map key; `None` if either map lacks the key or the schema does not specify it.
    pub(crate) fn key(&self, key: &str) -> Option<CorrelatedPair<'a>> {
        let (new, old) = (self.new.as_map()?.get(key)?, self.old.as_map()?.get(key)?);
        Some(CorrelatedPair::new(new, old, self.node.at_key(key)?))
    }

    /// The pair of a list item. Only items of lists of type `map` are correlated.
    pub(crate) fn index(&self, index: usize) -> Option<CorrelatedPair<'a>> {
        let (new, old) = (self.new.as_list()?, self.old.as_list()?);
        let item = new.get(index)?;
        let old = self.olds.get_or_init(|| Counterparts::new(self.node, old)).of(item)?;
        Some(CorrelatedPair::new(item, old, self.node.items.as_deref()?))
    }

    /// Whether the values are equal. The result is cached.
    pub(crate) fn is_unchanged(&self) -> bool {
        if let Some(known) = self.equal.get() {
            return known;
        }
        let equal = self.compare();
        self.equal.set(Some(equal));
        equal
    }

    fn compare(&self) -> bool {
        match (self.new, self.old) {
            (Value::Map(new), Value::Map(old)) => {
                new.len() == old.len()
                    && new.keys().all(|key| self.key(key).is_some_and(|child| child.is_unchanged()))
            }
            (Value::List(new), Value::List(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if !self.node.is_keyed_list() || self.node.items.is_none() {
                    return new == old;
                }
                (0..new.len()).all(|index| self.index(index).is_some_and(|child| child.is_unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The items of an old list, indexed by their list map keys so that correlating two long lists takes linear time.
#[derive(Clone, Debug)]
pub(crate) struct Counterparts<'a> {
    node: &'a SchemaNode,
    by_keys: HashMap<Vec<u8>, &'a Value>,
}

impl<'a> Counterparts<'a> {
    /// Indexes `old`. The index is empty unless `node` is a list of type `map`.
    pub(crate) fn new(node: &'a SchemaNode, old: &'a [Value]) -> Self {
        let has_keys = node.is_keyed_list() && !node.list_map_keys.is_empty();
        let items = if has_keys { old } else { &[] };
        // If several items have the same keys, the last one wins.
        let by_keys = items.iter().filter_map(|item| Some((keys(node, item)?, item))).collect();
        Counterparts { node, by_keys }
    }

    pub(crate) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.by_keys.is_empty() {
            return None;
        }
        self.by_keys.get(&keys(self.node, item)?).copied()
    }
}

/// Encodes the type and value of each list map key of an item, using defaults for absent keys.
fn keys(node: &SchemaNode, item: &Value) -> Option<Vec<u8>> {
    let item = item.as_map()?;
    let default = |key: &str| node.items.as_deref()?.property(key)?.default.as_ref();
    let mut out = Vec::with_capacity(32);
    for key in &node.list_map_keys {
        match item.get(key).or_else(|| default(key)) {
            None => out.push(b'-'),
            Some(value) => {
                // `1` and `1.0` have the same JSON but are different values.
                out.push(if matches!(value, Value::Float(_)) { b'.' } else { b'=' });
                write::write(&mut out, value);
            }
        }
        out.push(0);
    }
    Some(out)
}
