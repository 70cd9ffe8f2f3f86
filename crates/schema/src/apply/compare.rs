//! Compares two versions of an object and returns the fields that were removed, modified and added.

use std::iter::Peekable;

use value::{Map, Value};

use super::element::{Element, same};
use super::set::FieldSet;
use super::shape::{AssociativeList, OwnershipShape, Typed};
use crate::Schema;

/// Differences between two objects. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the old object has.
    pub removed: FieldSet,
    /// Fields that both have, with different values.
    pub modified: FieldSet,
    /// Fields that only the new object has.
    pub added: FieldSet,
}

/// Compares two objects along the schema. The error names the list that cannot be compared and the reason.
pub fn compare(old: &Value, new: &Value, schema: &Schema) -> Result<Comparison, String> {
    let mut found = Comparison::default();
    node(Some(old), Some(new), Typed::root(schema), &mut found)?;
    Ok(found)
}

/// Change of a value itself, as opposed to its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueChange {
    None,
    Removed,
    Modified,
    Added,
}

impl Comparison {
    pub fn set(&self) -> FieldSet {
        let mut set = self.modified.clone();
        set.unite(self.added.clone());
        set
    }

    fn push(&mut self, element: impl Fn() -> Element, change: ValueChange, below: Comparison) {
        for (set, own, below) in [
            (&mut self.removed, ValueChange::Removed, below.removed),
            (&mut self.modified, ValueChange::Modified, below.modified),
            (&mut self.added, ValueChange::Added, below.added),
        ] {
            if change == own || !below.is_empty() {
                set.push(element(), change == own, below);
            }
        }
    }
}

fn whole(old: Option<&Value>, new: Option<&Value>) -> ValueChange {
    match (old, new) {
        (None, _) => ValueChange::Added,
        (_, None) => ValueChange::Removed,
        (Some(old), Some(new)) if same(old, new) => ValueChange::None,
        _ => ValueChange::Modified,
    }
}

fn presence(old: Option<&Value>, new: Option<&Value>) -> ValueChange {
    match (old, new) {
        (None, _) => ValueChange::Added,
        (_, None) => ValueChange::Removed,
        _ => ValueChange::None,
    }
}

fn node(
    old: Option<&Value>,
    new: Option<&Value>,
    typed: Typed<'_>,
    found: &mut Comparison,
) -> Result<ValueChange, String> {
    if typed.is_any() {
        return any(old, new, typed, found);
    }
    match typed.shape(None) {
        OwnershipShape::Scalar | OwnershipShape::Atomic => Ok(whole(old, new)),
        OwnershipShape::Fields(typed) => fields(old, new, typed, found),
        OwnershipShape::Items(associative) => items(old, new, associative, found),
    }
}

/// Compares values of untyped JSON, which may change between map and scalar. The fields of the map are then added or removed with it.
fn any(
    old: Option<&Value>,
    new: Option<&Value>,
    typed: Typed<'_>,
    found: &mut Comparison,
) -> Result<ValueChange, String> {
    let is_map = |value: Option<&Value>| matches!(value, None | Some(Value::Null | Value::Map(_)));
    if typed.is_atomic_map() || !is_map(old) && !is_map(new) {
        return Ok(whole(old, new));
    }
    if is_map(old) && is_map(new) {
        return fields(old, new, typed, found);
    }
    fields(old.filter(|_| is_map(old)), new.filter(|_| is_map(new)), typed, found)?;
    Ok(whole(old, new))
}

fn fields(
    old: Option<&Value>,
    new: Option<&Value>,
    typed: Typed<'_>,
    found: &mut Comparison,
) -> Result<ValueChange, String> {
    static NONE: Map = Map::new();
    let (before, after) =
        (old.and_then(Value::as_map).unwrap_or(&NONE), new.and_then(Value::as_map).unwrap_or(&NONE));
    if before.is_empty() && after.is_empty() {
        // Two empty maps are compared as a whole, so that `null` and `{}` differ.
        return Ok(whole(old, new));
    }
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    while let Some((key, old, new)) = next_key(&mut before, &mut after) {
        let Some((child, _)) = typed.field(key) else { continue };
        let mut below = Comparison::default();
        let change = node(old, new, child, &mut below).map_err(|why| format!(".{key}{why}"))?;
        found.push(|| Element::Field(key.clone()), change, below);
    }
    Ok(presence(old, new))
}

type KeyedPair<'v> = (&'v value::Str, Option<&'v Value>, Option<&'v Value>);

/// The next key of two sorted maps, with its value in each.
fn next_key<'v, I>(before: &mut Peekable<I>, after: &mut Peekable<I>) -> Option<KeyedPair<'v>>
where
    I: Iterator<Item = (&'v value::Str, &'v Value)>,
{
    let from = match (before.peek(), after.peek()) {
        (Some((a, _)), Some((b, _))) => a.as_str().cmp(b.as_str()),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => return None,
    };
    let old = if from.is_le() { before.next() } else { None };
    let new = if from.is_ge() { after.next() } else { None };
    let key = old.or(new)?.0;
    Some((key, old.map(|(_, value)| value), new.map(|(_, value)| value)))
}

fn items(
    old: Option<&Value>,
    new: Option<&Value>,
    associative: AssociativeList<'_>,
    found: &mut Comparison,
) -> Result<ValueChange, String> {
    let before = old.and_then(Value::as_list).unwrap_or_default();
    let after = new.and_then(Value::as_list).unwrap_or_default();
    if before.is_empty() && after.is_empty() {
        return Ok(whole(old, new));
    }
    let (before, after) = (sorted(before, associative)?, sorted(after, associative)?);
    let (mut before, mut after) = (before.as_slice(), after.as_slice());
    loop {
        let element = match (before.first(), after.first()) {
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((a, _)), None) => a,
            (None, Some((b, _))) => b,
            (None, None) => break,
        };
        let (olds, news) = (take(&mut before, element), take(&mut after, element));
        let mut below = Comparison::default();
        let descend = |old: Option<&Value>, new: Option<&Value>, below: &mut Comparison| {
            node(old, new, associative.item, below).map_err(|why| format!("{element}{why}"))
        };
        let change = match (olds, news) {
            ([] | [_], [] | [_]) => {
                descend(olds.first().map(|(_, v)| *v), news.first().map(|(_, v)| *v), &mut below)?
            }
            // Duplicate items are compared as a whole. If duplicates become a single item or the reverse, the single item is added or
            // removed with all its fields.
            ([_, _, ..], [_, _, ..]) => {
                let equal = olds.len() == news.len()
                    && olds.iter().zip(news).all(|((_, old), (_, new))| same(old, new));
                if equal { ValueChange::None } else { ValueChange::Modified }
            }
            ([_, _, ..], _) => {
                if let Some((_, new)) = news.first() {
                    descend(None, Some(new), &mut below)?;
                    // The path of the removed duplicates is also the path of the added item.
                    found.added.push(element.clone(), true, FieldSet::EMPTY);
                }
                ValueChange::Removed
            }
            (_, _) => {
                if let Some((_, old)) = olds.first() {
                    descend(Some(old), None, &mut below)?;
                    found.removed.push(element.clone(), true, FieldSet::EMPTY);
                }
                ValueChange::Added
            }
        };
        found.push(|| element.clone(), change, below);
    }
    Ok(presence(old, new))
}

type IdentifiedItem<'v> = (Element, &'v Value);

fn sorted<'v>(
    items: &'v [Value],
    associative: AssociativeList<'_>,
) -> Result<Vec<IdentifiedItem<'v>>, String> {
    let mut out = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let element = associative.element(item).map_err(|why| format!(": element {at}: {why}"))?;
        out.push((element, item));
    }
    // The sort is stable, so duplicates stay in their order.
    out.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(out)
}

/// Splits off the items identified by `element`, which are at the front if there are any.
fn take<'i, 'v>(items: &mut &'i [IdentifiedItem<'v>], element: &Element) -> &'i [IdentifiedItem<'v>] {
    let count = items.iter().take_while(|(own, _)| own == element).count();
    let (taken, rest) = items.split_at_checked(count).unwrap_or((&[], items));
    *items = rest;
    taken
}
