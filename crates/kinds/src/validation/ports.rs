//! Rules for port numbers, port names and protocols, which containers, services, endpoints and network policies share.

use api::validation::fields::{At, Read as _, Report};
use api::{FieldErrors, names};
use value::Value;

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn port_number(number: i64, at: &At<'_>, errors: &mut FieldErrors) {
    for message in names::is_valid_port_num(number) {
        errors.invalid(at, number, message);
    }
}

/// Validates a port given by name or number. An absent port is reported as number 0.
pub(super) fn port_name_or_number(port: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match port.and_then(Value::as_str) {
        Some(name) => errors.invalid_each(at, name, names::is_valid_port_name(name)),
        None => port_number(port.and_then(Value::as_int).unwrap_or_default(), at, errors),
    }
}

/// Validates a required protocol name.
pub(super) fn protocol(protocol: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if protocol.is_empty() {
        errors.required(at, "");
    } else if !PROTOCOLS.contains(&protocol) {
        errors.not_supported(at, protocol, &PROTOCOLS);
    }
}

/// Validates the optional `appProtocol` of a port.
pub(super) fn app_protocol(port: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(app) = port.text_if_set("appProtocol") {
        errors.invalid_each(&at.field("appProtocol"), app, names::is_qualified_name(app));
    }
}
