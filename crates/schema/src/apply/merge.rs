//! Merges a configuration into an object, without removing anything.
//!
//! If both have a value, the one of the configuration wins. List items stay in the order of the object, except items that the
//! configuration orders differently.

use std::collections::BTreeSet;

use value::{Map, Value};

use super::element::Element;
use super::shape::{AssociativeList, OwnershipShape, Typed};
use crate::Schema;

/// Merges a [checked](super::check()) configuration into an object. The error names the list that cannot be merged and the reason.
pub fn merge(object: &Value, config: &Value, schema: &Schema) -> Result<Value, String> {
    node(object, config, Typed::root(schema))
}

fn node(object: &Value, config: &Value, typed: Typed<'_>) -> Result<Value, String> {
    match typed.shape(Some(config)) {
        OwnershipShape::Scalar | OwnershipShape::Atomic => Ok(config.clone()),
        OwnershipShape::Fields(typed) => match (object, config) {
            (Value::Map(object), Value::Map(config)) if !object.is_empty() || !config.is_empty() => {
                fields(object, config, typed).map(Value::Map)
            }
            // An empty configuration leaves the object unchanged.
            (Value::Map(object), _) if !object.is_empty() => Ok(Value::Map(object.clone())),
            _ => Ok(config.clone()),
        },
        OwnershipShape::Items(associative) => match (object, config) {
            (Value::List(object), Value::List(config)) if !object.is_empty() || !config.is_empty() => {
                items(object, config, associative).map(Value::List)
            }
            (Value::List(object), _) if !object.is_empty() => Ok(Value::List(object.clone())),
            _ => Ok(config.clone()),
        },
    }
}

fn fields(object: &Map, config: &Map, typed: Typed<'_>) -> Result<Map, String> {
    // Collects all entries and sorts once, because inserting one by one would be quadratic.
    let mut out = Vec::with_capacity(object.len() + config.len());
    for (key, there) in object.iter() {
        let merged = match (config.get(key), typed.field(key)) {
            (Some(value), Some((child, _))) => {
                node(there, value, child).map_err(|why| format!(".{key}{why}"))?
            }
            _ => there.clone(),
        };
        out.push((key.clone(), merged));
    }
    let new = config.iter().filter(|(key, _)| !object.contains_key(key) && typed.field(key).is_some());
    out.extend(new.map(|(key, value)| (key.clone(), value.clone())));
    Ok(Map::from_entries(out).0)
}

/// The items of the object or of the configuration, in list order and sorted.
struct IndexedList<'v> {
    items: Vec<(Element, &'v Value)>,
    /// Positions in `items`, sorted by element.
    sorted: Vec<usize>,
}

impl<'v> IndexedList<'v> {
    fn new(list: &'v [Value], associative: AssociativeList<'_>) -> Result<Self, String> {
        let mut items = Vec::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            items.push((associative.element(item).map_err(|why| format!(": element {at}: {why}"))?, item));
        }
        let mut sorted: Vec<usize> = (0..items.len()).collect();
        sorted.sort_by(|a, b| items.get(*a).map(|(e, _)| e).cmp(&items.get(*b).map(|(e, _)| e)));
        Ok(IndexedList { items, sorted })
    }

    fn at(&self, position: usize) -> Option<&(Element, &'v Value)> {
        self.items.get(position)
    }

    /// The positions of the items identified by `element`.
    fn find(&self, element: &Element) -> &[usize] {
        let own = |at: &usize| self.items.get(*at).map(|(element, _)| element);
        let from = self.sorted.partition_point(|at| own(at).is_some_and(|own| own < element));
        let to = self.sorted.partition_point(|at| own(at).is_some_and(|own| own <= element));
        self.sorted.get(from..to).unwrap_or_default()
    }

    fn has(&self, element: &Element) -> bool {
        !self.find(element).is_empty()
    }

    /// The only item identified by `element`; `None` if there are several.
    fn one(&self, element: &Element) -> Option<&'v Value> {
        match self.find(element) {
            [only] => self.at(*only).map(|(_, value)| *value),
            _ => None,
        }
    }
}

fn items(object: &[Value], config: &[Value], associative: AssociativeList<'_>) -> Result<Vec<Value>, String> {
    let there = IndexedList::new(object, associative)?;
    let wanted = IndexedList::new(config, associative)?;
    for pair in wanted.sorted.windows(2) {
        if let [a, b] = pair
            && let (Some((a, _)), Some((b, _))) = (wanted.at(*a), wanted.at(*b))
            && a == b
        {
            return Err(format!(": duplicate entries for key {a}"));
        }
    }
    let merged = |element: &Element, config: &'_ Value| -> Result<Value, String> {
        match there.one(element) {
            Some(object) => node(object, config, associative.item),
            None => Ok(config.clone()),
        }
        .map_err(|why| format!("{element}{why}"))
    };
    let mut out = Vec::with_capacity(there.items.len().max(wanted.items.len()));
    // The items that both have, in the order of the configuration, which takes precedence over the order of the object.
    let mut shared = wanted.items.iter().map(|(element, _)| element).filter(|element| there.has(element));
    let mut next_shared = shared.next();
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let (mut left, mut right) = (0, 0);
    loop {
        let (here, next) = (there.at(left), wanted.at(right));
        if here.is_none() && next.is_none() {
            return Ok(out);
        }
        if let (Some((element, _)), Some((wanted_element, config))) = (here, next) {
            if element == wanted_element {
                out.push(merged(element, config)?);
                taken.insert(wanted_element);
                (left, right) = (left + 1, right + 1);
                next_shared = shared.next();
                continue;
            }
            if wanted.has(element) && next_shared.is_some_and(|next| next != element) {
                // Both have this item, but another shared item comes first in the configuration.
                left += 1;
                continue;
            }
        }
        if let Some((element, value)) = here {
            if !wanted.has(element) {
                out.push((*value).clone());
                left += 1;
                continue;
            }
            if taken.contains(element) {
                left += 1;
            }
        }
        if let Some((element, config)) = next {
            out.push(merged(element, config)?);
            taken.insert(element);
            right += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
}
