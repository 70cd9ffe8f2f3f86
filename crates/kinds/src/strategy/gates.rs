//! Drops fields of feature gates that are off, unless the stored object already uses them.

use api::features::{Feature, Features};
use value::Value;

use api::validation::fields::is_absent;

/// Field paths of a disabled feature gate. A step `*` means every item of a list or every value of a map. A field whose
/// step ends in `?` is removed too if the gate's field was its only content.
pub(super) type Gate = &'static [&'static [&'static str]];

/// The fields of a feature that can be turned on.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeatureFields {
    pub(super) feature: Feature,
    pub(super) fields: Gate,
}

impl FeatureFields {
    /// Drops the fields if the feature is off, unless `old` uses one of them.
    pub(super) fn drop_disabled(&self, object: &mut Value, old: Option<&Value>, features: Features) {
        if !features.has(self.feature) {
            drop_disabled(&[self.fields], object, old);
        }
    }
}

/// Drops the fields of each gate unless `old` uses one of them.
pub(super) fn drop_disabled(gates: &[Gate], object: &mut Value, old: Option<&Value>) {
    for gate in gates {
        if old.is_some_and(|old| gate.iter().any(|path| used(old, path))) {
            continue;
        }
        for path in *gate {
            remove(object, path);
        }
    }
}

fn used(value: &Value, path: &[&str]) -> bool {
    match path.split_first() {
        None => !is_absent(value),
        Some((&"*", rest)) => match value {
            Value::List(list) => list.iter().any(|item| used(item, rest)),
            Value::Map(map) => map.values().any(|item| used(item, rest)),
            _ => false,
        },
        Some((field, rest)) => value.get(field.trim_end_matches('?')).is_some_and(|value| used(value, rest)),
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match path.split_first() {
        None => {}
        Some((&"*", rest)) => match value {
            Value::List(list) => list.iter_mut().for_each(|item| remove(item, rest)),
            Value::Map(map) => map.iter_mut().for_each(|(_, item)| remove(item, rest)),
            _ => {}
        },
        Some((field, [])) => {
            if let Some(map) = value.as_map_mut() {
                map.remove(field);
            }
        }
        Some((field, rest)) => {
            let name = field.trim_end_matches('?');
            let Some(inner) = value.get_mut(name) else { return };
            let had = inner.as_map().is_some_and(|map| !map.is_empty());
            remove(inner, rest);
            let emptied = had && inner.as_map().is_some_and(value::Map::is_empty);
            if emptied && field.ends_with('?') {
                value.remove_at(&[name]);
            }
        }
    }
}
