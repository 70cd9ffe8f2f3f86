//! Fills in the defaults of a schema.
//!
//! Every list item that lacks a field receives its default, so a small object may become hundreds of times larger. The added bytes are
//! counted, and defaulting fails when they exceed the limit.

use std::fmt;

use value::Value;

use super::node::SchemaNode;

/// How many bytes of JSON defaults may add to one object: the largest size that can be stored.
const MOST_ADDED: usize = 4 << 20;
/// How many bytes defaults may add to all objects of a list together.
const MOST_ADDED_TO_LIST: usize = 64 << 20;

/// Defaults would add more bytes to an object than can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the defaults of its CustomResourceDefinition add more than {MOST_ADDED} bytes to the object"
        )
    }
}

impl std::error::Error for TooLarge {}

/// How many bytes defaults may still add.
#[derive(Debug)]
pub struct DefaultsAllowance(usize);

impl DefaultsAllowance {
    /// Limit for a single object.
    pub fn for_object() -> Self {
        DefaultsAllowance(MOST_ADDED)
    }

    /// Limit shared by all objects of a list.
    pub fn for_list() -> Self {
        DefaultsAllowance(MOST_ADDED_TO_LIST)
    }

    /// The part of the remaining limit that one object of a list may use.
    #[must_use]
    pub fn share(&self) -> Self {
        DefaultsAllowance(self.0.min(MOST_ADDED))
    }

    /// Deducts the bytes that one object used of its `share`.
    pub fn deduct(&mut self, share: &DefaultsAllowance) {
        self.0 -= self.0.min(self.share().0.saturating_sub(share.0));
    }

    fn spend(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.0 = self.0.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }
}

/// Approximate length of a value as JSON.
pub(crate) fn size(value: &Value) -> usize {
    value.size_up_to(usize::MAX)
}

fn is_null(value: &Value, node: Option<&SchemaNode>) -> bool {
    value.is_null() && node.is_some_and(|node| !node.nullable)
}

/// Fills in the defaults below a value. On `TooLarge`, the value holds the defaults added so far.
pub(super) fn apply(
    value: &mut Value,
    node: &SchemaNode,
    allowance: &mut DefaultsAllowance,
) -> Result<(), TooLarge> {
    match value {
        Value::Map(map) => {
            let mut added = Vec::new();
            let mut left = Ok(());
            for (name, property) in &node.properties {
                if let Some(default) = &property.default
                    && map.get(name).is_none_or(|value| is_null(value, Some(property)))
                {
                    left = allowance.spend(name.len() + size(default) + 4);
                    if left.is_err() {
                        break;
                    }
                    added.push((name.clone(), default.clone()));
                }
            }
            map.extend(added);
            left?;
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.property(key) {
                    apply(value, property, allowance)?;
                } else if let Some(values) = node.values() {
                    replace_null(value, values, allowance)?;
                    apply(value, values, allowance)?;
                }
            }
        }
        Value::List(items) => {
            let Some(below) = node.items.as_deref() else { return Ok(()) };
            for item in items {
                replace_null(item, below, allowance)?;
                apply(item, below, allowance)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn replace_null(
    value: &mut Value,
    node: &SchemaNode,
    allowance: &mut DefaultsAllowance,
) -> Result<(), TooLarge> {
    if is_null(value, Some(node)) {
        allowance.spend(node.default.as_ref().map_or(0, size))?;
        *value = node.default.clone().unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::defaults::*;

    fn items(count: usize) -> Value {
        Value::map([("items", Value::List((0..count).map(|_| Value::Map(value::Map::new())).collect()))])
    }

    fn node() -> SchemaNode {
        let schema = format!(
            r#"{{"type": "object", "properties": {{"items": {{"type": "array", "items": {{"type": "object",
            "properties": {{"text": {{"type": "string", "default": "{}"}}}}}}}}}}}}"#,
            "x".repeat(1014)
        );
        SchemaNode::read(&value::json::parse(schema.as_bytes()).unwrap())
    }

    #[test]
    fn defaults_fail_when_an_object_exceeds_the_storage_limit() {
        let node = node();
        let mut fits = items(4096);
        assert_eq!(apply(&mut fits, &node, &mut DefaultsAllowance::for_object()), Ok(()));
        assert!(size(&fits) > MOST_ADDED);
        let mut large = items(200_000);
        assert_eq!(apply(&mut large, &node, &mut DefaultsAllowance::for_object()), Err(TooLarge));
        assert!(size(&large) < MOST_ADDED + 2_000_000, "what has been added is bounded, too");
    }

    #[test]
    fn the_objects_of_a_list_share_one_limit() {
        let mut allowance = DefaultsAllowance::for_list();
        for _ in 0..MOST_ADDED_TO_LIST / MOST_ADDED {
            let mut share = allowance.share();
            assert_eq!(share.spend(MOST_ADDED), Ok(()));
            assert_eq!(share.spend(1), Err(TooLarge));
            allowance.deduct(&share);
        }
        assert_eq!(allowance.share().spend(1), Err(TooLarge));
    }
    #[test]
    fn many_defaults_beside_many_other_fields_take_linear_steps() {
        let steps_of = |count: usize| {
            let properties: Vec<String> =
                (0..count).map(|i| format!(r#""a{i}": {{"type": "string", "default": "x"}}"#)).collect();
            let schema = format!(
                r#"{{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {{{}}}}}"#,
                properties.join(",")
            );
            let node = SchemaNode::read(&value::json::parse(schema.as_bytes()).unwrap());
            let mut object = Value::map((0..count).map(|i| (format!("b{i}"), i64::try_from(i).unwrap())));
            let steps = value::steps::of(|| {
                apply(&mut object, &node, &mut DefaultsAllowance::for_object()).unwrap();
            });
            assert_eq!(object.as_map().unwrap().len(), 2 * count);
            steps
        };
        let (short, long) = (steps_of(1000), steps_of(10_000));
        assert!(long <= 15 * short, "{short} steps, then {long}");
    }
}
