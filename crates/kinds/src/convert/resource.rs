//! Conversion of `resource.k8s.io` objects between the served `v1beta1` and the stored `v1`.
//!
//! In `v1beta1` the fields of an exact request are next to its name, and those of a device are in `basic`. Everything
//! else is equal, and `v1beta2` has the fields of `v1`.

use value::{Map, Value};

/// Fields that `v1` has inside `exactly`.
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

/// Converts a claim from `v1beta1` to `v1`.
pub fn claim_to_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices", "requests"], gather_exactly)
}

/// Converts a claim from `v1` to `v1beta1`.
pub fn claim_from_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices", "requests"], |request| spread(request, "exactly"))
}

/// Converts a claim template from `v1beta1` to `v1`.
pub fn template_to_v1(object: &Value) -> Value {
    requests(object, &["spec", "spec", "devices", "requests"], gather_exactly)
}

/// Converts a claim template from `v1` to `v1beta1`.
pub fn template_from_v1(object: &Value) -> Value {
    requests(object, &["spec", "spec", "devices", "requests"], |request| spread(request, "exactly"))
}

/// Converts a slice from `v1beta1` to `v1`.
pub fn slice_to_v1(object: &Value) -> Value {
    requests(object, &["spec", "devices"], |device| spread(device, "basic"))
}

/// Converts a slice from `v1` to `v1beta1`.
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

/// Returns the object with each item of the list at `path` changed.
fn requests(object: &Value, path: &[&str], change: impl Fn(&mut Map)) -> Value {
    let mut object = object.clone();
    if let Some(Value::List(items)) = object.at_mut(path) {
        items.iter_mut().filter_map(Value::as_map_mut).for_each(change);
    }
    object
}

/// Moves the fields of an exact request into `exactly`. Without a device class the request is invalid anyway; the empty
/// `allocationMode` then prevents a default, so that the errors match kube-apiserver's.
fn gather_exactly(request: &mut Map) {
    gather(request, "exactly", &EXACT);
    if let Some(Value::Map(exactly)) = request.get_mut("exactly")
        && exactly.get("deviceClassName").and_then(Value::as_str).is_none_or(str::is_empty)
        && exactly.get("allocationMode").is_none()
    {
        exactly.insert("allocationMode", "");
    }
}

/// Moves `fields` into a new map at `into`, if any of them exists.
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

/// Reverses [`gather`]: moves the fields of the map at `from` into the item.
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
