//! Validation of Namespace, ConfigMap, Secret, ServiceAccount and Endpoints.

use api::names::{self, name_is_dns_label, name_is_dns_subdomain};
use api::validation::fields::{At, Read, Report, same};
use api::validation::meta;
use api::{FieldErrors, meta as object_meta};
use value::Value;
use value::go::base64::STD;

use super::ports::{app_protocol, port_number, protocol};
use super::{ValidationContext, ValidationRules, no_rules};

/// Maximum size of the data of a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1 << 20;
const IMMUTABLE_WHEN_SET: &str = "field is immutable when `immutable` is set";

pub(crate) const NAMESPACE: ValidationRules =
    ValidationRules { create: namespace, update: namespace_update, update_status: namespace_status };
pub(crate) const CONFIG_MAP: ValidationRules =
    ValidationRules { create: config_map, update: config_map_update, update_status: no_rules };
pub(crate) const SECRET: ValidationRules =
    ValidationRules { create: secret, update: secret_update, update_status: no_rules };
pub(crate) const SERVICE_ACCOUNT: ValidationRules =
    ValidationRules { create: service_account, update: service_account_update, update_status: no_rules };
pub(crate) const ENDPOINTS: ValidationRules = ValidationRules {
    create: |new, _| endpoints(new, None),
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        errors.extend(endpoints(new, Some(old)));
        errors
    },
    update_status: no_rules,
};

fn namespace(namespace: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(namespace, false, name_is_dns_label);
    for finalizer in namespace.part("spec").texts("finalizers") {
        finalizer_name(finalizer, &At::new("spec.finalizers"), &mut errors);
    }
    errors
}

fn namespace_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = namespace(new, context);
    errors.extend(meta::update(new, old));
    errors
}

fn namespace_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let phase = new.part("status").text("phase");
    let at = At::new("status.Phase");
    if object_meta::is_deleting(new) {
        if phase != "Terminating" {
            errors.invalid(&at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
        }
    } else if phase != "Active" {
        errors.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
    }
    errors
}

/// Validates an update of a namespace through `finalize`.
pub fn namespace_finalize(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let at = At::new("spec.finalizers");
    for (i, finalizer) in new.part("spec").texts("finalizers").enumerate() {
        finalizer_name(finalizer, &at.index(i), &mut errors);
    }
    errors
}

fn finalizer_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(at, name, names::is_qualified_name(name));
    if !name.contains('/') && !api::finalizers::STANDARD.contains(&name) {
        errors.invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn config_map(map: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(map, true, name_is_dns_subdomain);
    let mut size = 0;
    for (key, text) in map.text_entries("data") {
        let at = At::new("data");
        errors.invalid_each(&at.key(key), key, names::is_config_map_key(key));
        if map.part("binaryData").part(key).is_some() {
            errors.invalid(&at.key(key), key, "duplicate of key present in binaryData");
        }
        size += text.len();
    }
    for (key, text) in map.text_entries("binaryData") {
        errors.invalid_each(&At::new("binaryData").key(key), key, names::is_config_map_key(key));
        size += decoded_len(text);
    }
    if size > MAX_DATA {
        // Go prints a path with one empty element like this.
        errors.too_long(&At::new("[]"), MAX_DATA);
    }
    errors
}

fn config_map_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    frozen(new, old, &["data", "binaryData"], &mut errors);
    errors.extend(config_map(new, context));
    errors
}

/// Rejects changes of `fields` in an object with `immutable: true`.
fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    if !old.flag("immutable") {
        return;
    }
    if !new.flag("immutable") {
        errors.forbidden(&At::new("immutable"), IMMUTABLE_WHEN_SET);
    }
    for field in fields {
        let (now, before) = (new.map_of(field), old.map_of(field));
        let same = match (now, before) {
            (Some(now), Some(before)) => now == before,
            (Some(some), None) | (None, Some(some)) => some.is_empty(),
            (None, None) => true,
        };
        if !same {
            errors.forbidden(&At::new(field), IMMUTABLE_WHEN_SET);
        }
    }
}

/// Number of bytes that a base64 text decodes to.
fn decoded_len(text: &str) -> usize {
    let digits = text.bytes().filter(|byte| !matches!(byte, b'=' | b'\n' | b'\r')).count();
    digits * 3 / 4
}

fn secret(secret: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(secret, true, name_is_dns_subdomain);
    let at = At::new("data");
    let mut size = 0;
    for (key, text) in secret.text_entries("data") {
        errors.invalid_each(&at.key(key), key, names::is_config_map_key(key));
        size += decoded_len(text);
    }
    if size > MAX_DATA {
        errors.too_long(&at, MAX_DATA);
    }
    let data = secret.part("data");
    let mut require = |key: &str| {
        if data.part(key).is_none() {
            errors.required(&at.key(key), "");
        }
    };
    match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if secret.part("metadata").part("annotations").text(key).is_empty() {
                errors.required(&At::new("metadata.annotations").key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg", &mut errors),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson", &mut errors),
        "kubernetes.io/basic-auth" if ["username", "password"].iter().all(|key| data.part(key).is_none()) => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => {
            errors.required(&at.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        _ => {}
    }
    errors
}

fn docker_config(data: Option<&Value>, key: &str, errors: &mut FieldErrors) {
    let at = At::new("data");
    let Some(text) = data.text_if_set(key) else {
        errors.required(&at.key(key), "");
        return;
    };
    let bytes = STD.decode(text).unwrap_or_default();
    if let Err(why) = json_object(&bytes) {
        errors.invalid(&at.key(key), "<secret contents redacted>", why);
    }
}

/// Checks that bytes are a JSON object. The error is that of Go's decoder.
fn json_object(bytes: &[u8]) -> Result<(), String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("unexpected end of JSON input".to_owned());
    }
    match value::json::parse(bytes) {
        Ok(Value::Map(_) | Value::Null) => Ok(()),
        Ok(other) => Err(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.json_type()
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn secret_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    if new.text("type") != old.text("type") {
        errors.invalid(&At::new("type"), new.text("type"), api::validation::fields::IMMUTABLE);
    }
    frozen(new, old, &["data"], &mut errors);
    errors.extend(secret(new, context));
    errors
}

fn service_account(account: &Value, _: &ValidationContext) -> FieldErrors {
    meta::create(account, true, name_is_dns_subdomain)
}

fn service_account_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    errors.extend(service_account(new, context));
    errors
}

fn endpoints(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = meta::create(new, true, name_is_dns_subdomain);
    if old.is_some_and(|old| same(old.part("subsets"), new.part("subsets"))) {
        return errors;
    }
    let subsets = At::new("subsets");
    for (i, subset) in new.items("subsets").iter().enumerate() {
        let here = subsets.index(i);
        if subset.items("addresses").is_empty() && subset.items("notReadyAddresses").is_empty() {
            errors.required(&here, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ["addresses", "notReadyAddresses"] {
            let list = here.field(field);
            for (j, address) in subset.items(field).iter().enumerate() {
                endpoint_address(address, &list.index(j), &mut errors);
            }
        }
        let ports = subset.items("ports");
        let list = here.field("ports");
        for (j, port) in ports.iter().enumerate() {
            endpoint_port(port, ports.len() > 1, &list.index(j), &mut errors);
        }
    }
    errors
}

fn endpoint_address(address: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let ip = address.text("ip");
    errors.invalid_each(&at.field("ip"), ip, names::is_valid_ip_for_legacy_field(ip, true));
    let hostname = address.text("hostname");
    if !hostname.is_empty() {
        errors.invalid_each(&at.field("hostname"), hostname, names::is_dns1123_label(hostname));
    }
    if let Some(node) = address.text_if_set("nodeName") {
        errors.invalid_each(&at.field("nodeName"), node, names::is_dns1123_subdomain(node));
    }
    endpoint_ip(ip, &at.field("ip"), errors);
}

/// Validates an address to which traffic can be sent.
pub(super) fn endpoint_ip(text: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(ip) = names::parse_ip_sloppy(text).map(|ip| ip.to_canonical()) else {
        errors.invalid(at, text, "must be a valid IP address");
        return;
    };
    if ip.is_unspecified() {
        errors.invalid(at, text, format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        errors.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (unicast, multicast) = match ip {
        std::net::IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            (v4.is_link_local(), (a, b, c) == (224, 0, 0))
        }
        std::net::IpAddr::V6(v6) => {
            let first = v6.segments().first().copied().unwrap_or_default();
            (v6.is_unicast_link_local(), first & 0xff0f == 0xff02)
        }
    };
    if unicast {
        errors.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn endpoint_port(port: &Value, require_name: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let name = port.text("name");
    if require_name && name.is_empty() {
        errors.required(&at.field("name"), "");
    } else if !name.is_empty() {
        errors.invalid_each(&at.field("name"), name, names::is_dns1123_label(name));
    }
    port_number(port.number("port"), &at.field("port"), errors);
    protocol(port.text("protocol"), &at.field("protocol"), errors);
    app_protocol(port, at, errors);
}
