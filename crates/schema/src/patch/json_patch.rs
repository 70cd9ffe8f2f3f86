//! JSON Patch (RFC 6902) as implemented by kube-apiserver's library: replacing or copying a missing field sets it, negative indexes
//! count from the end of a list, and the bytes added by copies are limited.

use api::Status;
use api::field::quote;
use value::{Map, Str, Value, json, steps, write};

pub const MAX_OPERATIONS: usize = 10_000;
/// Limit on the bytes that all copy operations of a patch may add.
pub const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Limit on the list items and map entries that one patch may shift or visit, so that thousands of operations on a long list fail
/// early.
const MAX_WORK: usize = 200_000_000;

/// How many shifted items count as one access to a tree.
const ITEMS_PER_ACCESS: usize = 8;

/// One operation with its fields as sent.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatchOperation(Map);

/// Decodes the operations. The error has the wording of Go's decoder and is meant for a 400 response.
pub fn decode(patch: Value) -> Result<Vec<JsonPatchOperation>, String> {
    let list = match patch {
        Value::Null => Vec::new(),
        Value::List(list) => list,
        other => {
            let kind = other.json_type();
            return Err(format!("json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch"));
        }
    };
    let operation = |item: Value| match item {
        Value::Map(map) => Ok(JsonPatchOperation(map)),
        Value::Null => Ok(JsonPatchOperation(Map::new())),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Operation",
            other.json_type()
        )),
    };
    list.into_iter().map(operation).collect()
}

/// Returns 413 if there are too many operations.
pub fn bound(operations: &[JsonPatchOperation]) -> Result<(), Status> {
    if operations.len() <= MAX_OPERATIONS {
        return Ok(());
    }
    Err(Status::too_large(format!(
        "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
        operations.len()
    )))
}

/// Decodes operations as strict field validation does: fails on wrong types and returns the unknown fields.
pub fn check(patch: &Value) -> Result<Vec<String>, String> {
    let list = match patch {
        Value::Null => &[][..],
        Value::List(list) => list,
        other => {
            let kind = other.json_type();
            return Err(format!(
                "json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
            ));
        }
    };
    let mut unknown = Vec::new();
    for (i, item) in list.iter().enumerate() {
        let map = match item {
            Value::Null => continue,
            Value::Map(map) => map,
            other => {
                let kind = other.json_type();
                return Err(format!(
                    "json: cannot unmarshal {kind} into Go value of type handlers.jsonPatchOp"
                ));
            }
        };
        for (key, value) in map.iter() {
            match (key.as_str(), value) {
                ("value", _) | ("op" | "path" | "from", Value::String(_) | Value::Null) => {}
                ("op" | "path" | "from", other) => {
                    return Err(format!(
                        "json: cannot unmarshal {} into Go struct field jsonPatchOp.{key} of type string",
                        other.json_type()
                    ));
                }
                _ => unknown.push(format!("unknown field {}", quote(&format!("[{i}].{key}")))),
            }
        }
    }
    Ok(unknown)
}

/// Applies operations in order and stops at the first failure, with the library's error message.
pub fn apply(mut document: Value, operations: &[JsonPatchOperation]) -> Result<Value, String> {
    let mut spent = Spent::default();
    for operation in operations {
        match operation.kind() {
            "add" => operation.add(&mut document, &mut spent)?,
            "remove" => operation.remove(&mut document, &mut spent)?,
            "replace" => operation.replace(&mut document, &mut spent)?,
            "move" => operation.relocate(&mut document, &mut spent)?,
            "test" => operation.test(&document)?,
            "copy" => operation.copy(&mut document, &mut spent)?,
            other => return Err(format!("Unexpected kind: {other}")),
        }
    }
    Ok(document)
}

/// The resources that a patch has used so far.
#[derive(Default)]
struct Spent {
    /// Bytes added by copy operations.
    copied: usize,
    /// Items shifted or visited.
    work: usize,
}

impl Spent {
    fn work(&mut self, items: usize) -> Result<(), String> {
        steps::count(items / ITEMS_PER_ACCESS);
        self.work += items;
        if self.work > MAX_WORK { Err("the patch takes too much work".to_owned()) } else { Ok(()) }
    }

    /// Limits the depth of the result to that of parsed JSON; otherwise repeated copies could nest without limit.
    fn deep_enough(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let mut items = 0;
        let depth = path.matches('/').count() + depth(value, &mut items);
        self.work(items)?;
        if depth > json::MAX_DEPTH { Err("exceeded max depth".to_owned()) } else { Ok(()) }
    }
}

/// The nesting depth of a value. Adds the number of visited values to `items`.
fn depth(value: &Value, items: &mut usize) -> usize {
    *items += 1;
    match value {
        Value::List(list) => 1 + list.iter().map(|item| depth(item, items)).max().unwrap_or(0),
        Value::Map(map) => 1 + map.values().map(|item| depth(item, items)).max().unwrap_or(0),
        _ => 0,
    }
}

impl JsonPatchOperation {
    fn kind(&self) -> &str {
        self.0.get("op").and_then(Value::as_str).unwrap_or("unknown")
    }

    fn text(&self, field: &str, missing: &str) -> Result<&str, String> {
        match self.0.get(field) {
            Some(Value::String(text)) => Ok(text),
            None | Some(Value::Null) => Err(format!("{missing}: missing value")),
            Some(other) => {
                Err(format!("json: cannot unmarshal {} into Go value of type string", other.json_type()))
            }
        }
    }

    fn path(&self) -> Result<&str, String> {
        self.text("path", "operation missing path field")
    }

    fn from(&self) -> Result<&str, String> {
        self.text("from", "operation, missing from field")
    }

    /// The operation's `value`, or `null` if it is absent.
    fn value(&self) -> Value {
        self.0.get("value").cloned().unwrap_or_default()
    }

    fn add(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let path = self.path().map_err(|_| "add operation failed to decode path: missing value")?;
        let (container, key) = find(document, path).ok_or_else(|| {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        insert(spent, container, path, &key, self.value())
            .map_err(|e| format!("error in add for path: '{path}': {e}"))
    }

    fn remove(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let path = self.path().map_err(|_| "remove operation failed to decode path: missing value")?;
        let (container, key) = find(document, path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        take(spent, container, &key).map(drop).map_err(|e| format!("error in remove for path: '{path}': {e}"))
    }

    fn replace(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let path = self.path().map_err(|e| format!("replace operation failed to decode path: {e}"))?;
        if path.is_empty() {
            let value = self.value();
            if !matches!(value, Value::Map(_) | Value::List(_)) {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            spent.deep_enough(path, &value)?;
            *document = value;
            return Ok(());
        }
        let (container, key) = find(document, path).ok_or_else(|| {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        })?;
        match container {
            Value::List(list) => {
                let slot = position(&key, list.len()).ok().and_then(|at| list.get_mut(at));
                let slot = slot.ok_or_else(|| {
                    format!("replace operation does not apply: doc is missing key: {path}: missing value")
                })?;
                let value = self.value();
                spent.deep_enough(path, &value)?;
                *slot = value;
                Ok(())
            }
            container => insert(spent, container, path, &key, self.value())
                .map_err(|e| format!("error in remove for path: '{path}': {e}")),
        }
    }

    fn relocate(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let from = self.from().map_err(|e| format!("move operation failed to decode from: {e}"))?;
        let (container, key) = find(document, from).ok_or_else(|| {
            format!("move operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let value =
            take(spent, container, &key).map_err(|e| format!("error in move for path: '{key}': {e}"))?;
        let path = self.path().map_err(|e| format!("move operation failed to decode path: {e}"))?;
        let (container, key) = find(document, path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(spent, container, path, &key, value)
            .map_err(|e| format!("error in move for path: '{path}': {e}"))
    }

    fn test(&self, document: &Value) -> Result<(), String> {
        let path = self.path().map_err(|e| format!("test operation failed to decode path: {e}"))?;
        let expected = self.0.get("value").unwrap_or(&Value::Null);
        let actual = if path.is_empty() {
            document
        } else {
            let (container, key) = look(document, path).ok_or_else(|| {
                format!("test operation does not apply: is missing path: {path}: missing value")
            })?;
            get(container, &key).map_err(|e| format!("error in test for path: '{path}': {e}"))?
        };
        if actual == expected { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
    }

    fn copy(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let from = self.from().map_err(|e| format!("copy operation failed to decode from: {e}"))?;
        let (container, key) = look(document, from).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let value =
            get(container, &key).map_err(|e| format!("error in copy for from: '{from}': {e}"))?.clone();
        let path = self.path().map_err(|_| "copy operation failed to decode path: missing value")?;
        let (container, key) = find(document, path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        if !value.is_null() {
            spent.copied += write::to_vec(&value).len();
        }
        let copied = spent.copied;
        if copied > MAX_COPIED {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
            ));
        }
        insert(spent, container, path, &key, value)
            .map_err(|e| format!("error while adding value during copy: {e}"))
    }
}

/// Splits a path into the keys before the last one and the last one. Text before the first slash is ignored.
fn split(path: &str) -> Option<(impl Iterator<Item = Str>, Str)> {
    let (_, rest) = path.split_once('/')?;
    let (way, last) = rest.rsplit_once('/').map_or((None, rest), |(way, last)| (Some(way), last));
    Some((way.into_iter().flat_map(|way| way.split('/')).map(unescape), unescape(last)))
}

/// Replaces `~1` by `/` and `~0` by `~`.
fn unescape(key: &str) -> Str {
    if !key.contains('~') {
        return key.into();
    }
    let mut out = String::with_capacity(key.len());
    let mut parts = key.split('~');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        match (part.strip_prefix('1'), part.strip_prefix('0')) {
            (Some(rest), _) => {
                out.push('/');
                out.push_str(rest);
            }
            (_, Some(rest)) => {
                out.push('~');
                out.push_str(rest);
            }
            _ => {
                out.push('~');
                out.push_str(part);
            }
        }
    }
    out.into()
}

/// The map or list that contains the last key of a path.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, Str)> {
    let (way, final_key) = split(path)?;
    let mut here = document;
    for key in way {
        here = match here {
            Value::Map(map) => map.get_mut(&key)?,
            Value::List(list) => {
                let at = position(&key, list.len()).ok()?;
                list.get_mut(at)?
            }
            _ => return None,
        };
    }
    matches!(here, Value::Map(_) | Value::List(_)).then_some((here, final_key))
}

/// Like [`find`], without mutable access.
fn look<'a>(document: &'a Value, path: &str) -> Option<(&'a Value, Str)> {
    let (way, last) = split(path)?;
    let mut here = document;
    for key in way {
        here = get(here, &key).ok()?;
    }
    matches!(here, Value::Map(_) | Value::List(_)).then_some((here, last))
}

/// The value at a key; `null` if a map does not have it.
fn get<'a>(container: &'a Value, key: &str) -> Result<&'a Value, String> {
    match container {
        Value::List(list) => {
            let at = position(key, list.len())?;
            list.get(at).ok_or_else(|| invalid_index(key))
        }
        container => Ok(container.get(key).unwrap_or(&Value::Null)),
    }
}

fn take(spent: &mut Spent, container: &mut Value, key: &str) -> Result<Value, String> {
    match container {
        Value::List(list) => {
            let at = position(key, list.len())?;
            spent.work(list.len() - at)?;
            Ok(list.remove(at))
        }
        container => {
            let map = container.as_map_mut();
            spent.work(map.as_ref().map_or(0, |map| shifted(map, key)))?;
            map.and_then(|map| map.remove(key))
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
    }
}

fn insert(
    spent: &mut Spent,
    container: &mut Value,
    path: &str,
    key: &str,
    value: Value,
) -> Result<(), String> {
    spent.deep_enough(path, &value)?;
    match container {
        Value::List(list) if key == "-" => list.push(value),
        Value::List(list) => {
            number(key).map_err(|e| format!("value was not a proper array index: '{key}': {e}"))?;
            let at = position(key, list.len() + 1)?;
            spent.work(list.len() - at)?;
            list.insert(at, value);
        }
        container => {
            let map = container.make_map();
            if !map.contains_key(key) {
                spent.work(shifted(map, key))?;
            }
            map.insert(key, value);
        }
    }
    Ok(())
}

/// Approximate number of map entries that move when an entry is inserted or removed.
fn shifted(map: &Map, key: &str) -> usize {
    let is_last = map.keys().next_back().is_none_or(|last| last.as_str() <= key);
    if is_last { 0 } else { map.len() / 2 }
}

fn number(key: &str) -> Result<i64, String> {
    key.parse().map_err(|e: std::num::ParseIntError| {
        let why = match e.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {why}", quote(key))
    })
}

/// The index in a list of `length` items that a key denotes.
fn position(key: &str, length: usize) -> Result<usize, String> {
    let index = number(key)?;
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let at = if index < 0 { index.saturating_add(length) } else { index };
    if at < 0 || at >= length {
        return Err(invalid_index(key));
    }
    usize::try_from(at).map_err(|_| invalid_index(key))
}

fn invalid_index(key: &str) -> String {
    let index = key.parse::<i64>().unwrap_or_default();
    format!("Unable to access invalid index: {index}: invalid index referenced")
}
