//! Computes the set of fields of a value, and removes a set of fields from a value.

use value::{Map, Value};

use super::element::Element;
use super::set::FieldSet;
use super::shape::{AssociativeList, OwnershipShape, Typed};
use crate::Schema;

/// Every field and item in `value`, which an applier of it owns.
pub fn fields(value: &Value, schema: &Schema) -> FieldSet {
    walk(value, Typed::root(schema)).1
}

/// Whether the value's own path is in the set, and the set of the fields below it.
fn walk(value: &Value, typed: Typed<'_>) -> (bool, FieldSet) {
    match typed.shape(Some(value)) {
        OwnershipShape::Scalar | OwnershipShape::Atomic => (true, FieldSet::EMPTY),
        OwnershipShape::Fields(typed) => match value {
            Value::Map(map) => (false, of_map(map, typed)),
            _ => (false, FieldSet::EMPTY),
        },
        OwnershipShape::Items(associative) => match value {
            Value::List(items) => (false, of_list(items, associative)),
            _ => (false, FieldSet::EMPTY),
        },
    }
}

fn of_map(map: &Map, typed: Typed<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    for (key, value) in map.iter() {
        let Some((child, declared)) = typed.field(key) else { continue };
        let (own, below) = walk(value, child);
        let is_empty = match value {
            Value::Null => true,
            Value::Map(map) => map.is_empty(),
            _ => false,
        };
        set.push(Element::Field(key.clone()), own || is_empty || !declared, below);
    }
    set
}

fn of_list(items: &[Value], associative: AssociativeList<'_>) -> FieldSet {
    let mut sorted: Vec<(Element, &Value)> =
        items.iter().filter_map(|item| Some((associative.element(item).ok()?, item))).collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut set = FieldSet::default();
    let mut sorted = sorted.into_iter().peekable();
    while let Some((element, item)) = sorted.next() {
        let mut repeated = false;
        while sorted.next_if(|(next, _)| *next == element).is_some() {
            repeated = true;
        }
        // Parts of duplicate items cannot be owned.
        let below = if repeated { FieldSet::EMPTY } else { walk(item, associative.item).1 };
        set.push(element, true, below);
    }
    set
}

/// Removes the fields and items of `set`. A map or list that becomes empty is replaced by `null`.
pub(super) fn remove(value: &mut Value, set: &FieldSet, typed: Typed<'_>) {
    if set.is_empty() {
        return;
    }
    let emptied = match typed.shape(Some(value)) {
        OwnershipShape::Scalar => return,
        OwnershipShape::Atomic => true,
        OwnershipShape::Fields(typed) => match value {
            Value::Map(map) => {
                map.retain(|name, value| match set.get(&Element::Field(name.clone())) {
                    Some(entry) if entry.owned => false,
                    Some(entry) => {
                        if let Some((child, _)) = typed.field(name) {
                            remove(value, &entry.below, child);
                        }
                        true
                    }
                    None => true,
                });
                map.is_empty()
            }
            _ => true,
        },
        OwnershipShape::Items(associative) => match value {
            Value::List(items) => {
                items.retain_mut(|item| {
                    let entry = associative.element(item).ok().and_then(|element| set.get(&element));
                    match entry {
                        Some(entry) if entry.owned => false,
                        Some(entry) => {
                            remove(item, &entry.below, associative.item);
                            true
                        }
                        None => true,
                    }
                });
                items.is_empty()
            }
            _ => true,
        },
    };
    if emptied {
        *value = Value::Null;
    }
}
