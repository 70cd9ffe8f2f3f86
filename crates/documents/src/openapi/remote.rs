//! Merges the version 2 documents of aggregated API servers into the server's own document.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use value::{Map, Str, Value};

/// The sections that references point to.
const SECTIONS: [&str; 2] = ["definitions", "parameters"];

/// How many numbered names are tried to resolve a name conflict.
const MAX_NAMES: usize = 1000;

/// Reduces a document to the paths that start with `prefix` and the parts they refer to.
pub fn below(mut document: Value, prefix: &str) -> Value {
    let mut paths = Map::new();
    if let Some(Value::Map(all)) = document.remove_at(&["paths"]) {
        for (path, item) in all.iter().filter(|(path, _)| path.starts_with(prefix)) {
            paths.insert(path.clone(), item.clone());
        }
    }
    let paths = Value::Map(paths);
    let mut selected = Value::map([("paths", Value::Null)]);
    let mut sections: HashMap<&str, HashMap<Str, Value>> = HashMap::new();
    for section in SECTIONS {
        if let Some(Value::Map(all)) = document.remove_at(&[section]) {
            sections.insert(section, all.into_iter().collect());
        }
    }
    let mut parts: BTreeMap<&str, Vec<(Str, Value)>> = BTreeMap::new();
    let mut open = references(&paths);
    // Removing a part when it is found ensures that it is visited only once.
    while let Some((section, name)) = open.pop() {
        if let Some(found) = sections.get_mut(section).and_then(|all| all.remove_entry(name.as_str())) {
            open.extend(references(&found.1));
            parts.entry(section).or_default().push(found);
        }
    }
    for (section, parts) in parts {
        selected.set_at(&[section], Value::map(parts));
    }
    selected.set_at(&["paths"], paths);
    if let Some(info) = document.remove_at(&["info"]) {
        selected.set_at(&["info"], info);
    }
    selected
}

/// Every reference in a document tree, as section and name.
fn references(tree: &Value) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut open = vec![tree];
    while let Some(tree) = open.pop() {
        match tree {
            Value::Map(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).and_then(target));
                open.extend(map.values());
            }
            Value::List(list) => open.extend(list),
            _ => {}
        }
    }
    found
}

fn target(reference: &str) -> Option<(&'static str, String)> {
    let rest = reference.strip_prefix("#/")?;
    let (section, name) = rest.split_once('/')?;
    let section = SECTIONS.into_iter().find(|known| *known == section)?;
    Some((section, name.to_owned()))
}

/// Merges the documents of aggregated API servers. Existing paths take precedence, and remote definitions whose name is already used
/// for something else are renamed.
pub(super) fn merge(mut document: Value, others: &[Arc<Value>]) -> Value {
    for other in others {
        add(&mut document, other);
    }
    document
}

fn add(document: &mut Value, other: &Value) {
    let mut renamed: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut parts: BTreeMap<&str, Vec<(Str, Value)>> = BTreeMap::new();
    for section in SECTIONS {
        let Some(map) = other.get(section).and_then(Value::as_map) else { continue };
        for (name, part) in map.iter() {
            let free = (1..MAX_NAMES).find_map(|number| {
                let tried = if number == 1 { name.to_string() } else { format!("{name}_v{number}") };
                match document.at(&[section, tried.as_str()]) {
                    None => Some((tried, true)),
                    Some(there) if same(there, part) => Some((tried, false)),
                    Some(_) => None,
                }
            });
            let Some((new_name, is_new)) = free else { continue };
            if new_name != name.as_str() {
                renamed.insert((section, name.to_string()), new_name.clone());
            }
            if is_new {
                parts.entry(section).or_default().push((new_name.into(), part.clone()));
            }
        }
    }
    let paths = other.get("paths").and_then(Value::as_map).into_iter().flat_map(Map::iter);
    let new_paths = paths.filter(|(path, _)| document.at(&["paths", path.as_str()]).is_none());
    parts.insert("paths", new_paths.map(|(path, item)| (path.clone(), item.clone())).collect());
    for (section, mut parts) in parts {
        for (_, part) in &mut parts {
            rename(part, &renamed);
        }
        // Inserted all at once, because inserting one by one moves all later entries of the map each time.
        let there = match document.remove_at(&[section]) {
            Some(Value::Map(there)) => there,
            _ => Map::new(),
        };
        document.set_at(&[section], there.into_iter().chain(parts).collect::<Map>());
    }
}

/// Whether two definitions are equal except for their `x-kubernetes-group-version-kind`.
fn same(a: &Value, b: &Value) -> bool {
    const BELONGS: &str = "x-kubernetes-group-version-kind";
    if a == b {
        return true;
    }
    let without = |part: &Value| {
        let mut part = part.clone();
        part.remove_at(&[BELONGS]);
        part
    };
    without(a) == without(b)
}

fn rename(tree: &mut Value, renamed: &BTreeMap<(&str, String), String>) {
    if renamed.is_empty() {
        return;
    }
    match tree {
        Value::Map(map) => {
            let now = map.get("$ref").and_then(Value::as_str).and_then(target).and_then(|(section, name)| {
                let now = renamed.get(&(section, name))?;
                Some(format!("#/{section}/{now}"))
            });
            if let Some(now) = now {
                map.insert("$ref", now);
            }
            for (_, value) in map.iter_mut() {
                rename(value, renamed);
            }
        }
        Value::List(list) => list.iter_mut().for_each(|value| rename(value, renamed)),
        _ => {}
    }
}
