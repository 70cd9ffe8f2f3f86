//! resource.k8s.io: `v1beta1` as it is served ↔ `v1` as it is stored.
//!
//! In `v1beta1` the fields of an exact request stand beside its name, and those of a device are in `basic`. Everything else is the
//! same, and `v1beta2` is `v1` under another name.

use value::{Map, Value};

/// The fields that `v1` has in `exactly`.
const EXACT: [&str; 8] = [
    "adminAccess",
    "allocationMode",
    "capacity",
    "count",
    "derivedAttributes",
    "deviceClassName",
    "selectors",
    "tolerations",
];

/// A claim: `v1beta1` → `v1`.
pub fn claim_to_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices", "requests"], gather_exactly)
}

/// A claim: `v1` → `v1beta1`.
pub fn claim_from_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices", "requests"], |request| spread(request, "exactly"))
}

/// A template of claims: `v1beta1` → `v1`.
pub fn template_to_v1(object: &Value) -> Value {
    requests(object, &["spec", "spec", "devices", "requests"], gather_exactly)
}

/// A template of claims: `v1` → `v1beta1`.
pub fn template_from_v1(object: &Value) -> Value {
    requests(object, &["spec", "spec", "devices", "requests"], |request| spread(request, "exactly"))
}

/// A slice: `v1beta1` → `v1`.
pub fn slice_to_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices"], |device| spread(device, "basic"))
}

/// A slice: `v1` → `v1beta1`.
pub fn slice_from_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices"], |device| {
        let fields: Vec<String> =
            device.keys().filter(|key| key.as_str() != "name").map(ToString::to_string).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        gather(device, "basic", &fields);
        if device.get("basic").is_none() {
            device.insert("basic", Map::new());
        }
    })
}

/// Changes each item of a list.
fn requests(object: &Value, path: &[&str], change: impl Fn(&mut Map)) -> Value {
    let mut object = object.clone();
    if let Some(Value::List(items)) = object.at_mut(path) {
        items.iter_mut().filter_map(Value::as_map_mut).for_each(change);
    }
    object
}

/// Makes an exact request of the fields of one. Without a class there is no default for how many: no such request is valid, and what
/// is said of it shows that.
fn gather_exactly(request: &mut Map) {
    gather(request, "exactly", &EXACT);
    if let Some(Value::Map(exactly)) = request.get_mut("exactly")
        && exactly.get("deviceClassName").and_then(Value::as_str).is_none_or(str::is_empty)
        && exactly.get("allocationMode").is_none()
    {
        exactly.insert("allocationMode", "");
    }
}

/// Moves fields into a struct of their own, if any of them is there.
fn gather(item: &mut Map, into: &'static str, fields: &[&str]) {
    let mut inner = Map::new();
    for field in fields {
        if let Some(value) = item.remove(field) {
            inner.insert(*field, value);
        }
    }
    if !inner.is_empty() {
        item.insert(into, inner);
    }
}

/// The way back.
fn spread(item: &mut Map, from: &str) {
    if let Some(Value::Map(inner)) = item.remove(from) {
        for (field, value) in inner.iter() {
            item.insert(field.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use value::json::parse;

    use crate::convert::resource::{claim_from_v1, claim_to_v1, slice_from_v1, slice_to_v1, template_to_v1};

    fn same(
        beta: &[u8],
        stable: &[u8],
        there: fn(&value::Value) -> value::Value,
        back: fn(&value::Value) -> value::Value,
    ) {
        let (beta, stable) = (parse(beta).unwrap(), parse(stable).unwrap());
        assert_eq!(there(&beta), stable);
        assert_eq!(back(&stable), beta);
    }

    #[test]
    fn exact_requests_are_flat_in_v1beta1_and_alternatives_are_not() {
        same(
            br#"{"spec":{"devices":{"requests":[{"name":"a","deviceClassName":"c","adminAccess":true},{"name":"b","firstAvailable":[{"name":"x"}]}]}}}"#,
            br#"{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c","adminAccess":true}},{"name":"b","firstAvailable":[{"name":"x"}]}]}}}"#,
            claim_to_v1,
            claim_from_v1,
        );
        let template =
            parse(br#"{"spec":{"spec":{"devices":{"requests":[{"name":"a","count":2}]}}}}"#).unwrap();
        let stable = parse(
            br#"{"spec":{"spec":{"devices":{"requests":[{"name":"a","exactly":{"count":2,"allocationMode":""}}]}}}}"#,
        )
        .unwrap();
        assert_eq!(template_to_v1(&template), stable);
    }

    #[test]
    fn devices_are_basic_in_v1beta1() {
        same(
            br#"{"spec":{"devices":[{"name":"d","basic":{"attributes":{"a":{"int":1}}}},{"name":"e","basic":{}}]}}"#,
            br#"{"spec":{"devices":[{"name":"d","attributes":{"a":{"int":1}}},{"name":"e"}]}}"#,
            slice_to_v1,
            slice_from_v1,
        );
    }
}
