//! Which part of an old object a part of the new one continues, so that what was wrong before and did not change is let pass.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use value::{Value, write};

use super::node::Node;

/// A new value, the old one it continues, and the schema by which that is known.
#[derive(Clone, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
    node: &'a Node,
    equal: Cell<Option<bool>>,
    /// The old items of a list by their keys, made when the first one is asked for.
    olds: OnceCell<Counterparts<'a>>,
}

impl<'a> Pair<'a> {
    /// A whole object and what it was.
    pub(crate) fn new(new: &'a Value, old: &'a Value, node: &'a Node) -> Self {
        Pair { new, old, node, equal: Cell::new(None), olds: OnceCell::new() }
    }

    /// The pair at a key; `None` where one of them has no such key, or the schema does not know it.
    pub(crate) fn key(&self, key: &str) -> Option<Pair<'a>> {
        let (new, old) = (self.new.as_map()?.get(key)?, self.old.as_map()?.get(key)?);
        Some(Pair::new(new, old, self.node.at_key(key)?))
    }

    /// The pair of an item; only lists told apart by keys have any.
    pub(crate) fn index(&self, index: usize) -> Option<Pair<'a>> {
        let (new, old) = (self.new.as_list()?, self.old.as_list()?);
        let item = new.get(index)?;
        let old = self.olds.get_or_init(|| Counterparts::new(self.node, old)).of(item)?;
        Some(Pair::new(item, old, self.node.items.as_deref()?))
    }

    /// Whether nothing changed.
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

/// The items of an old list, found by what tells them apart: a list of many is correlated with another of many.
#[derive(Clone, Debug)]
pub(crate) struct Counterparts<'a> {
    node: &'a Node,
    by_keys: HashMap<Vec<u8>, &'a Value>,
}

impl<'a> Counterparts<'a> {
    /// Of a list with this schema; only one told apart by keys has any.
    pub(crate) fn new(node: &'a Node, old: &'a [Value]) -> Self {
        let told_apart = node.is_keyed_list() && !node.list_map_keys.is_empty();
        let items = if told_apart { old } else { &[] };
        // The last one counts, should there be several with the same keys.
        let by_keys = items.iter().filter_map(|item| Some((keys(node, item)?, item))).collect();
        Counterparts { node, by_keys }
    }

    /// The old item with the same keys as `item`.
    pub(crate) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.by_keys.is_empty() {
            return None;
        }
        self.by_keys.get(&keys(self.node, item)?).copied()
    }
}

/// What tells an item apart, with defaults where it says nothing: for each key its type and value.
fn keys(node: &Node, item: &Value) -> Option<Vec<u8>> {
    let item = item.as_map()?;
    let default = |key: &str| node.items.as_deref()?.property(key)?.default.as_ref();
    let mut out = Vec::with_capacity(32);
    for key in &node.list_map_keys {
        match item.get(key).or_else(|| default(key)) {
            None => out.push(b'-'),
            Some(value) => {
                // `1` and `1.0` are written alike, and are two.
                out.push(if matches!(value, Value::Float(_)) { b'.' } else { b'=' });
                write::write(&mut out, value);
            }
        }
        out.push(0);
    }
    Some(out)
}
