//! Finds duplicate and referenced list items in one pass.
//!
//! Lists come from clients and may have 100,000 items. Searching the list again for each of its items would take minutes,
//! so rules about duplicate or referenced items use these tables instead.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use value::Value;

use super::fields::Read;

/// Marks the items of a list that duplicate another one.
#[derive(Debug)]
pub struct Repeated(Vec<bool>);

impl Repeated {
    /// Marks the items with the key of an earlier item.
    pub fn earlier<K: Hash + Eq>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut seen = HashSet::new();
        Repeated(keys.into_iter().map(|key| !seen.insert(key)).collect())
    }

    /// Marks the items with the key of a later item.
    pub fn later<K: Hash + Eq>(keys: impl DoubleEndedIterator<Item = K>) -> Self {
        let Repeated(mut repeated) = Repeated::earlier(keys.rev());
        repeated.reverse();
        Repeated(repeated)
    }

    /// Marks the items whose string in `field` also occurs in an earlier item.
    pub fn of_field(items: &[Value], field: &str) -> Self {
        Repeated::earlier(items.iter().map(|item| item.text(field)))
    }

    /// Reports whether the item at `index` is marked.
    pub fn at(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or_default()
    }

    /// Reports whether any item is marked.
    pub fn any(&self) -> bool {
        self.0.contains(&true)
    }
}

/// The first item for each string in `field`; items without the field count as empty strings.
pub fn first_by<'a>(items: &'a [Value], field: &str) -> HashMap<&'a str, &'a Value> {
    last_of(items.iter().rev(), field)
}

/// The last item for each string in `field`; items without the field count as empty strings.
pub fn last_by<'a>(items: &'a [Value], field: &str) -> HashMap<&'a str, &'a Value> {
    last_of(items.iter(), field)
}

fn last_of<'a>(items: impl Iterator<Item = &'a Value>, field: &str) -> HashMap<&'a str, &'a Value> {
    items.map(|item| (item.text(field), item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(repeated: &Repeated) -> Vec<usize> {
        (0..repeated.0.len()).filter(|i| repeated.at(*i)).collect()
    }

    #[test]
    fn repeated_items_are_found_in_either_direction() {
        let keys = ["a", "b", "a", "a", "c"];
        assert_eq!(indices(&Repeated::earlier(keys)), [2, 3]);
        assert_eq!(indices(&Repeated::later(keys.into_iter())), [0, 2]);
        assert!(Repeated::earlier(keys).any());
        assert!(!Repeated::earlier(["a", "b"]).any());
    }

    #[test]
    fn first_by_and_last_by_index_the_first_and_last_item_of_a_name() {
        let item = |name: &str, number: i64| Value::map([("name", Value::from(name)), ("n", number.into())]);
        let items = [item("a", 1), item("a", 2), item("b", 3)];
        let number = |item: Option<&&Value>| item.and_then(|item| item.int_at(&["n"]));
        assert_eq!(number(first_by(&items, "name").get("a")), Some(1));
        assert_eq!(number(last_by(&items, "name").get("a")), Some(2));
    }
}
