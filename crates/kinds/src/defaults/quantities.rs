//! Rounds resource quantities up to thousandths, the smallest unit that is stored.

use api::quantity::Quantity;
use value::{Map, Value};

use super::fields::Fill;

/// Rounds `limits` and `requests` up to whole thousandths.
pub(crate) fn round_up(resources: &mut Map) {
    round_up_list(resources, "limits");
    round_up_list(resources, "requests");
}

/// Rounds the quantities in the map at `field` up to whole thousandths.
pub(crate) fn round_up_list(holder: &mut Map, field: &str) {
    let Some(list) = holder.child(field) else { return };
    for (_, quantity) in list.iter_mut() {
        if let Some(rounded) = quantity.as_str().and_then(rounded) {
            *quantity = Value::from(rounded);
        }
    }
}

fn rounded(text: &str) -> Option<String> {
    let quantity = Quantity::parse(text).ok()?;
    let milli = quantity.milli_value();
    if quantity.is_integer() || milli == i64::MAX {
        return None;
    }
    let rounded = Quantity::from_milli(milli, quantity.format());
    (rounded != quantity).then(|| rounded.canonical())
}
