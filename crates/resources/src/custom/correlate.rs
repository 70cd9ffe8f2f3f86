//! Which part of an old object a part of the new one continues, so that what was wrong before and did not change is let pass.

use std::cell::Cell;

use value::Value;

use super::node::Node;

/// A new value, the old one it continues, and the schema by which that is known.
#[derive(Clone, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
    node: &'a Node,
    equal: Cell<Option<bool>>,
}

impl<'a> Pair<'a> {
    /// A whole object and what it was.
    pub(crate) fn new(new: &'a Value, old: &'a Value, node: &'a Node) -> Self {
        Pair { new, old, node, equal: Cell::new(None) }
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
        let old = counterpart(self.node, item, old)?;
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

/// The item of an old list with the same keys as `item`; the last one, should there be several.
pub(crate) fn counterpart<'a>(node: &Node, item: &Value, old: &'a [Value]) -> Option<&'a Value> {
    if !node.is_keyed_list() || node.list_map_keys.is_empty() {
        return None;
    }
    let item = item.as_map()?;
    let default = |key: &str| {
        let property = node.items.as_deref().and_then(|items| items.property(key));
        property.and_then(|property| property.default.as_ref())
    };
    let same = |other: &Value| {
        other.as_map().is_some_and(|other| {
            node.list_map_keys.iter().all(|key| {
                let mine = item.get(key).or_else(|| default(key));
                mine == other.get(key).or_else(|| default(key))
            })
        })
    };
    old.iter().rev().find(|other| same(other))
}
