//! Merges lists: matches their items and orders the result.

use std::collections::{HashMap, HashSet};

use value::{Map, Str, Value, go, write};

use super::{
    DIRECTIVE, Error, MergeBudget, MergeRule, MergeSchema, SET_ELEMENT_ORDER, directive_field,
    merge_list_field, merge_maps, without_directives,
};

/// Merges the lists that have `$setElementOrder` directives and removes both from the patch.
pub(super) fn merge_ordered<S: MergeSchema>(
    original: &mut Map,
    patch: &mut Map,
    schema: S,
    work: &mut MergeBudget,
) -> Result<(), Error> {
    let directives: Vec<Str> = patch.keys().filter(|k| k.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = list(patch.remove(&directive).unwrap_or_default())?;
        let field = directive_field(&directive, SET_ELEMENT_ORDER)?;
        let live = original.get(&field).cloned().map(list).transpose()?;
        let change = patch.get(&field).cloned().map(list).transpose()?;
        let rule = schema.list_field(&field).map_err(Error::Other)?;
        work.on(order.len() + live.as_ref().map_or(0, Vec::len) + change.as_ref().map_or(0, Vec::len))?;
        check_order(change.as_deref().unwrap_or_default(), &order, rule.merge_key.as_deref())?;
        let mut server = live.clone().unwrap_or_default();
        let changes = change.clone().unwrap_or_default();
        let merged = match (live, change) {
            (Some(live), None) => live,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(live), Some(change)) => {
                let merged = merge_list_field(live, change, &rule, false, work)?;
                server = merged.live.unwrap_or(server);
                merged.list
            }
            (None, None) => continue,
        };
        let key = rule.merge_key.as_deref();
        let (named, rest) = partition(merged, &order, key)?;
        let objects = element_type(&[&server, &changes])? == "map[string]interface {}";
        let ordered = interleave(named, rest, &order, &server, key.filter(|_| objects))?;
        original.insert(field.clone(), ordered);
        patch.remove(&field);
    }
    Ok(())
}

pub(super) struct Merged {
    pub(super) list: Vec<Value>,
    /// The order of the live list as Kubernetes sees it afterwards, if it changed: Kubernetes merges in place, so new items fill the
    /// space that deleted ones left at the end.
    pub(super) live: Option<Vec<Value>>,
}

impl From<Vec<Value>> for Merged {
    fn from(list: Vec<Value>) -> Self {
        Merged { list, live: None }
    }
}

/// Merges two lists of a field that merges, or removes the items of a deletion list.
pub(super) fn merge_lists<S: MergeSchema>(
    original: Vec<Value>,
    patch: Vec<Value>,
    rule: &MergeRule<S>,
    deletes: bool,
    work: &mut MergeBudget,
) -> Result<Merged, Error> {
    work.on(original.len() + patch.len())?;
    if original.is_empty() && patch.is_empty() {
        return Ok(original.into());
    }
    if element_type(&[&original, &patch])? != "map[string]interface {}" {
        if deletes {
            let gone: HashSet<String> = patch.iter().map(identity).collect();
            let remaining: Vec<Value> =
                original.into_iter().filter(|item| !gone.contains(&identity(item))).collect();
            return Ok(remaining.into());
        }
        let mut seen = HashSet::new();
        let both = original.iter().chain(&patch);
        let merged: Vec<Value> = both.filter(|item| seen.insert(identity(item))).cloned().collect();
        let (named, rest) = partition(merged, &patch, rule.merge_key.as_deref())?;
        return interleave(named, rest, &patch, &original, None).map(Merged::from);
    }
    let Some(key) = rule.merge_key.as_deref() else {
        let word = rule.schema.go_kind();
        return Err(Error::Other(format!("cannot merge lists without merge key for {word}")));
    };
    let length = original.len();
    let (original, patch) = directives(original, patch, key)?;
    let mut merged = original.clone();
    let mut positions = ItemPositions::of(&merged, Some(key));
    for item in &patch {
        let item = object(item)?;
        let id = item.get(key).ok_or_else(|| Error::no_merge_key(item, key))?;
        if let Some(slot) = positions.get_id(id).and_then(|at| merged.get_mut(at)) {
            if let Value::Map(old) = std::mem::take(slot) {
                *slot = Value::Map(merge_maps(old, item.clone(), rule.schema, work)?);
            }
        } else {
            positions.note(id, merged.len());
            merged.push(Value::Map(item.clone()));
        }
    }
    let live = (original.len() < length).then(|| merged.iter().take(length).cloned().collect());
    let (named, rest) = partition(merged, &patch, Some(key))?;
    Ok(Merged { list: interleave(named, rest, &patch, &original, Some(key))?, live })
}

/// Executes the directives among the items of a patch and returns both lists without them.
fn directives(original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for item in patch {
        let map = object(&item)?;
        let Some(directive) = map.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let id = map.get(key).ok_or_else(|| Error::no_merge_key(map, key))?;
                gone.insert(identity(id));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Error::Other("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(Error::bad_directive(directive, map)),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    let stays = |item: &Value| item.get(key).is_none_or(|id| !gone.contains(&identity(id)));
    Ok((original.into_iter().filter(stays).collect(), plain))
}

/// Checks that the items of a patch, except deletions, occur in the order directive and in its order.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut remaining = order.iter();
    for item in patch {
        if let Some(key) = key {
            if object(item)?.contains_key(DIRECTIVE) {
                continue;
            }
            let wanted = id(item, key)?;
            let mut found = false;
            for candidate in remaining.by_ref() {
                if id(candidate, key)? == wanted {
                    found = true;
                    break;
                }
            }
            if found {
                continue;
            }
        } else if remaining.by_ref().any(|candidate| candidate == item) {
            continue;
        }
        let (patch, order) = (Value::List(patch.to_vec()), Value::List(order.to_vec()));
        return Err(Error::Other(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            go::text(&patch),
            go::text(&order)
        )));
    }
    Ok(())
}

/// Splits items into those that `list` contains and the others.
fn partition(
    items: Vec<Value>,
    list: &[Value],
    key: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    if key.is_some()
        && let Some(at) = list.iter().position(|item| !matches!(item, Value::Map(_)))
        && !items.is_empty()
    {
        return Err(Error::Other(format!("value for key {at} is not a map")));
    }
    let positions = ItemPositions::of(list, key);
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    for item in items {
        if let Some(key) = key {
            id(&item, key)?;
        }
        if positions.get(&item).is_some() { named.push(item) } else { rest.push(item) }
    }
    Ok((named, rest))
}

/// Sorts `named` by `order` and `rest` by the live list, then interleaves them: an item of `rest` goes before the first named item that
/// follows it in the live list.
fn interleave(
    mut named: Vec<Value>,
    mut rest: Vec<Value>,
    order: &[Value],
    live: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, Error> {
    if let Some(key) = key {
        for item in named.iter().chain(order).chain(&rest).chain(live) {
            id(item, key)?;
        }
    }
    let (order, live) = (ItemPositions::of(order, key), ItemPositions::of(live, key));
    named.sort_by_cached_key(|item| order.get(item).unwrap_or(usize::MAX));
    rest.sort_by_cached_key(|item| live.get(item).unwrap_or(usize::MAX));
    let mut out = Vec::with_capacity(named.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for item in named {
        let limit = live.get(&item).unwrap_or(0);
        while rest.peek().is_some_and(|next| live.get(next).is_some_and(|at| at < limit)) {
            out.extend(rest.next());
        }
        out.push(item);
    }
    out.extend(rest);
    Ok(out)
}

/// The Go type that all items share. Lists of lists are an error.
fn element_type(lists: &[&[Value]]) -> Result<&'static str, Error> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let Some(first) = items.next() else {
        return Err(Error::Other("no elements in any of the given slices".to_owned()));
    };
    if matches!(first, Value::List(_)) {
        return Err(Error::LIST_OF_LISTS);
    }
    let expected = go::type_name(first);
    if items.all(|item| go::type_name(item) == expected) {
        return Ok(expected);
    }
    let lists: Vec<Value> = lists.iter().map(|list| Value::List(list.to_vec())).collect();
    Err(Error::Other(format!("list element types are not identical: {}", go::text(&Value::List(lists)))))
}

fn list(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::List(list) => Ok(list),
        other => Err(Error::wrong_type(&Value::List(Vec::new()), &other)),
    }
}

fn object(value: &Value) -> Result<&Map, Error> {
    value.as_map().ok_or_else(|| Error::wrong_type(&Value::Map(Map::new()), value))
}

/// The value of an item's merge key.
fn id<'a>(item: &'a Value, key: &str) -> Result<&'a Value, Error> {
    let map = object(item)?;
    map.get(key).ok_or_else(|| Error::no_merge_key(map, key))
}

/// Index of the first occurrence of each item. Clients control the length of lists, so lookups must not scan them.
struct ItemPositions<'k> {
    key: Option<&'k str>,
    positions: HashMap<String, usize>,
}

impl<'k> ItemPositions<'k> {
    /// Indexes items by their merge key, or by value if there is none.
    fn of(list: &[Value], key: Option<&'k str>) -> Self {
        let mut positions = ItemPositions { key, positions: HashMap::with_capacity(list.len()) };
        for (at, item) in list.iter().enumerate() {
            if let Some(id) = key.map_or(Some(item), |key| item.get(key)) {
                positions.note(id, at);
            }
        }
        positions
    }

    fn note(&mut self, id: &Value, at: usize) {
        self.positions.entry(identity(id)).or_insert(at);
    }

    fn get_id(&self, id: &Value) -> Option<usize> {
        self.positions.get(&identity(id)).copied()
    }

    fn get(&self, item: &Value) -> Option<usize> {
        self.get_id(self.key.map_or(Some(item), |key| item.get(key))?)
    }
}

/// Text that is equal only for equal values; integers and floats differ.
fn identity(value: &Value) -> String {
    match value {
        Value::String(text) => format!("s{text}"),
        Value::Float(_) => format!("f{}", write::to_string(value)),
        other => write::to_string(other),
    }
}
