//! Defaults of CustomResourceDefinition and APIService.

use value::{Map, Value};

use super::fields::Fill;

const HTTPS_PORT: i64 = 443;

pub fn custom_resource_definition(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    let names = spec.child_or_insert("names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !kind.is_empty() {
        names.fill_zero("singular", kind.to_lowercase());
        names.fill_zero("listKind", format!("{kind}List"));
    }
    spec.fill("conversion", Value::map([("strategy", "None")]));
    let conversion = spec.child("conversion").and_then(|conversion| conversion.child("webhook"));
    if let Some(service) = conversion.and_then(|webhook| webhook.child("clientConfig")) {
        fill_port(service);
    }
    let stored = spec.children("versions").find_map(|version| {
        let is_stored = version.get("storage").and_then(Value::as_bool).unwrap_or_default();
        is_stored.then(|| version.get("name").cloned().unwrap_or_default())
    });
    if let Some(stored) = stored {
        object.child_or_insert("status").fill_zero("storedVersions", vec![stored]);
    }
}

pub fn api_service(object: &mut Value) {
    if let Some(spec) = object.as_map_mut().and_then(|object| object.child("spec")) {
        fill_port(spec);
    }
}

fn fill_port(holder: &mut Map) {
    if let Some(service) = holder.child("service") {
        service.fill("port", HTTPS_PORT);
    }
}
