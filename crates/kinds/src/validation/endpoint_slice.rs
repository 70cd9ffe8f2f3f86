//! Validation of EndpointSlice, in version `discovery.k8s.io/v1`.

use std::collections::HashSet;

use std::net::IpAddr;

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use value::Value;

use super::core::endpoint_ip;
use super::ports::{PROTOCOLS, app_protocol};
use super::{ValidationContext, ValidationRules, no_rules};

pub(crate) const ENDPOINT_SLICE: ValidationRules =
    ValidationRules { create, update, update_status: no_rules };

const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_ENDPOINTS: usize = 1000;
const MAX_HINTS: usize = 8;
const MAX_TOPOLOGY: usize = 16;
const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

fn create(slice: &Value, _: &ValidationContext) -> FieldErrors {
    supersede(rules(slice, None), declared(slice, None))
}

fn update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = rules(new, Some(old));
    if new.text("addressType") != old.text("addressType") {
        errors.invalid(&At::new("addressType"), new.text("addressType"), IMMUTABLE);
    }
    supersede(errors, declared(new, Some(old)))
}

fn rules(slice: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = meta::create(slice, true, names::name_is_dns_subdomain);
    let kind = slice.text("addressType");
    if kind.is_empty() {
        errors.required(&At::new("addressType"), "");
    } else if !ADDRESS_TYPES.contains(&kind) {
        errors.not_supported(&At::new("addressType"), kind, &ADDRESS_TYPES);
    }
    ports(slice.items("ports"), &mut errors);
    if old.is_none_or(|old| !same(old.part("endpoints"), slice.part("endpoints"))) {
        endpoints(slice.items("endpoints"), kind, &mut errors);
    }
    errors
}

fn ports(ports: &[Value], errors: &mut FieldErrors) {
    let list = At::new("ports");
    if ports.len() > MAX_PORTS {
        errors.too_many(&list, ports.len(), MAX_PORTS);
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let at = list.index(i);
        let name = port.text("name");
        if !name.is_empty() {
            errors.invalid_each(&at.field("name"), name, names::is_dns1123_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
        match port.text_if_set("protocol") {
            None => errors.required(&at.field("protocol"), ""),
            Some(protocol) if !PROTOCOLS.contains(&protocol) => {
                errors.not_supported(&at.field("protocol"), protocol, &PROTOCOLS);
            }
            Some(_) => {}
        }
        app_protocol(port, &at, errors);
    }
}

fn endpoints(endpoints: &[Value], kind: &str, errors: &mut FieldErrors) {
    let list = At::new("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        errors.too_many(&list, endpoints.len(), MAX_ENDPOINTS);
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let at = list.index(i);
        let addresses = at.field("addresses");
        let count = endpoint.items("addresses").len();
        if count == 0 {
            errors.required(&addresses, "must contain at least 1 address");
        } else if count > MAX_ADDRESSES {
            errors.too_many(&addresses, count, MAX_ADDRESSES);
        }
        for (j, address) in endpoint.texts("addresses").enumerate() {
            address_rules(address, kind, &addresses, j, errors);
        }
        if let Some(node) = endpoint.text_if_set("nodeName") {
            errors.invalid_each(&at.field("nodeName"), node, names::is_dns1123_subdomain(node));
        }
        let topology = endpoint.map_of("deprecatedTopology").map_or(0, value::Map::len);
        if topology > MAX_TOPOLOGY {
            errors.too_many(&at.field("deprecatedTopology"), topology, MAX_TOPOLOGY);
        }
        meta::labels(Some(endpoint), "deprecatedTopology", &at, errors);
        if let Some(host) = endpoint.text_if_set("hostname") {
            errors.invalid_each(&at.field("hostname"), host, names::is_dns1123_label(host));
        }
        if let Some(hints) = endpoint.part("hints") {
            let hints_at = at.field("hints");
            let zones: fn(&str) -> Vec<String> = names::is_valid_label_value;
            if hint_list(hints, "forZones", zones, &hints_at, errors) {
                hint_list(hints, "forNodes", names::is_dns1123_subdomain, &hints_at, errors);
            }
        }
    }
}

fn address_rules(address: &str, kind: &str, list: &At<'_>, i: usize, errors: &mut FieldErrors) {
    let at = list.index(i);
    let is_v6 =
        || names::parse_ip_sloppy(address).is_some_and(|ip| matches!(ip.to_canonical(), IpAddr::V6(_)));
    match kind {
        "IPv4" | "IPv6" => {
            let wrong = if kind == "IPv4" {
                names::is_valid_ip_for_legacy_field(address, true)
            } else {
                names::is_valid_ip(address)
            };
            if !wrong.is_empty() {
                errors.invalid_each(&at, address, wrong);
                return;
            }
            if is_v6() != (kind == "IPv6") {
                errors.invalid(list, address, format!("must be an {kind} address"));
            }
            endpoint_ip(address, &at, errors);
        }
        "FQDN" => {
            let count = errors.len();
            errors.extend(names::is_fully_qualified_domain_name(&value::Path::root(), address));
            for error in errors.iter_mut().skip(count) {
                error.field = at.to_string();
            }
        }
        _ => {}
    }
}

/// Validates the zone or node hints of an endpoint. Returns false if there are too many.
fn hint_list(
    hints: &Value,
    field: &str,
    rule: fn(&str) -> Vec<String>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) -> bool {
    let list = at.field(field);
    let items = hints.items(field);
    if items.len() > MAX_HINTS {
        errors.too_many(&list, items.len(), MAX_HINTS);
        return false;
    }
    let repeated = Repeated::of_field(items, "name");
    for (i, item) in items.iter().enumerate() {
        let here = list.index(i);
        let name = item.text("name");
        if repeated.at(i) {
            errors.duplicate(&here.field("name"), name);
        }
        errors.invalid_each(&here.field("name"), name, rule(name));
    }
    true
}

fn declared(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let kind = new.text("addressType");
    let at = At::new("addressType");
    match old {
        Some(old) if old.text("addressType") != kind => {
            if kind.is_empty() {
                declared.required(&at, "");
            }
            declared.invalid(&at, Value::Null, IMMUTABLE);
        }
        None if kind.is_empty() => declared.required(&at, ""),
        None if !ADDRESS_TYPES.contains(&kind) => declared.not_supported(&at, kind, &ADDRESS_TYPES),
        _ => {}
    }
    if old.is_some_and(|old| same(old.part("endpoints"), new.part("endpoints"))) {
        return declared;
    }
    let list = At::new("endpoints");
    for (i, endpoint) in new.items("endpoints").iter().enumerate() {
        let at = list.index(i);
        let count = endpoint.items("addresses").len();
        if count == 0 {
            declared.required(&at.field("addresses"), "");
        } else if count > MAX_ADDRESSES {
            declared.too_many(&at.field("addresses"), count, MAX_ADDRESSES);
        }
    }
    declared
}
