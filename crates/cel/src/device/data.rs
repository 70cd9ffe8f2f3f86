//! Devices as selectors see them, read from ResourceSlices.

use value::{Str, Value};

use crate::eval::Error;
use crate::lib::Ext;
use crate::lib::quantity;
use crate::lib::semver::Semver;
use crate::val::{LazyFields, MapEntries, MapVal, Val};

/// A device of a ResourceSlice, in the form of the `device` variable.
#[derive(Clone, Debug)]
pub struct SelectableDevice {
    driver: Str,
    shared: bool,
    attributes: ValuesByDomain,
    capacity: ValuesByDomain,
}

impl SelectableDevice {
    /// Reads a device from a slice of `driver`. The error names the attribute or capacity that cannot be read.
    pub fn read(driver: &str, device: &Value) -> Result<SelectableDevice, String> {
        let mut attributes = ValuesByDomain::default();
        for (name, attribute) in entries(device, "attributes") {
            let val = attribute_value(attribute).map_err(|why| format!("attribute {name}: {why}"))?;
            attributes.insert(driver, name, val);
        }
        let mut capacity = ValuesByDomain::default();
        for (name, entry) in entries(device, "capacity") {
            let text = match entry.get("value") {
                Some(Value::String(text)) => text.to_string(),
                Some(Value::Int(number)) => number.to_string(),
                _ => "0".to_owned(),
            };
            let quantity = quantity::parse(&text).map_err(|why| format!("capacity {name}: {why}"))?;
            capacity.insert(driver, name, Val::ext(Ext::Quantity { quantity, computed: false }));
        }
        let shared = device.get("allowMultipleAllocations").and_then(Value::as_bool).unwrap_or(false);
        Ok(SelectableDevice { driver: driver.into(), shared, attributes, capacity })
    }
}

fn entries<'v>(device: &'v Value, field: &str) -> impl Iterator<Item = (&'v str, &'v Value)> {
    let map = device.get(field).and_then(Value::as_map);
    map.into_iter().flat_map(|map| map.iter().map(|(name, value)| (name.as_str(), value)))
}

/// The value of an attribute; list fields are tried first, as in Kubernetes.
fn attribute_value(attribute: &Value) -> Result<Val<'static>, String> {
    let get = |field: &str| attribute.get(field).filter(|value| !value.is_null());
    for field in ["ints", "bools", "strings", "versions"] {
        if let Some(Value::List(items)) = get(field) {
            let items = items.iter().map(|item| scalar(item, field == "versions"));
            return items.collect::<Result<Vec<_>, _>>().map(Val::list);
        }
    }
    for field in ["int", "bool", "string", "version"] {
        if let Some(value) = get(field) {
            return scalar(value, field == "version");
        }
    }
    Err("unsupported attribute value".to_owned())
}

fn scalar(value: &Value, is_version: bool) -> Result<Val<'static>, String> {
    match value {
        Value::String(text) if is_version => Semver::parse(text)
            .map(|version| Val::ext(Ext::Semver(version)))
            .map_err(|why| format!("parse semantic version: {why}")),
        Value::Int(_) | Value::Bool(_) | Value::String(_) => Ok(Val::data(value).own()),
        _ => Err("unsupported attribute value".to_owned()),
    }
}

impl LazyFields for SelectableDevice {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        Some(Ok(match name {
            "driver" => Val::str(&self.driver),
            "allowMultipleAllocations" => Val::Bool(self.shared),
            "attributes" => Val::Map(MapVal::Lazy(&self.attributes)),
            "capacity" => Val::Map(MapVal::Lazy(&self.capacity)),
            _ => return None,
        }))
    }

    fn names(&self) -> Vec<&str> {
        vec!["allowMultipleAllocations", "attributes", "capacity", "driver"]
    }
}

/// Values by domain and name. Reading an unknown domain gives an empty map.
#[derive(Clone, Debug, Default)]
struct ValuesByDomain(Vec<(Str, Val<'static>)>);

impl ValuesByDomain {
    /// Inserts a value; a name without a domain belongs to the driver's domain.
    fn insert(&mut self, driver: &str, name: &str, val: Val<'static>) {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        let id = Val::string(id);
        for (known, names) in &mut self.0 {
            if known == domain
                && let Val::Map(MapVal::Owned(entries)) = names
            {
                std::sync::Arc::make_mut(entries).insert(id, val);
                return;
            }
        }
        let mut entries = MapEntries::default();
        entries.insert(id, val);
        self.0.push((domain.into(), Val::Map(MapVal::of(entries))));
    }
}

impl LazyFields for ValuesByDomain {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        let known = self.0.iter().find(|(domain, _)| domain == name);
        Some(Ok(
            known.map_or_else(|| Val::Map(MapVal::of(MapEntries::default())), |(_, names)| names.borrow())
        ))
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(domain, _)| domain.as_str()).collect()
    }

    fn holds(&self, name: &str) -> bool {
        self.0.iter().any(|(domain, _)| domain == name)
    }
}
