//! Rules for IP addresses and CIDRs in fields of old APIs, whose malformed values stay valid in objects that have them.

use std::collections::HashSet;

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::Value;

/// Validates an address unless the old object already has it.
pub(super) fn legacy_ip(ip: &str, old_ips: &HashSet<&str>, at: &At<'_>, errors: &mut FieldErrors) {
    if !old_ips.contains(ip) {
        errors.invalid_each(at, ip, names::is_valid_ip_for_legacy_field(ip, true));
    }
}

/// Validates a CIDR unless the old object already has it.
pub(super) fn legacy_cidr(cidr: &str, old_cidrs: &HashSet<&str>, at: &At<'_>, errors: &mut FieldErrors) {
    if !old_cidrs.contains(cidr) {
        errors.invalid_each(at, cidr, names::is_valid_cidr_for_legacy_field(cidr, true));
    }
}

/// Validates `status.loadBalancer.ingress` of a Service or an Ingress. Only services have `ipMode`.
pub(super) fn load_balancer_status(new: &Value, old: &Value, has_ip_mode: bool, errors: &mut FieldErrors) {
    let path = ["status", "loadBalancer", "ingress"];
    let old_ips: HashSet<&str> = old.list_at(&path).iter().map(|ingress| ingress.text("ip")).collect();
    let at = At::new("status.loadBalancer.ingress");
    for (i, ingress) in new.list_at(&path).iter().enumerate() {
        let at = at.index(i);
        let ip = ingress.text("ip");
        if !ip.is_empty() {
            legacy_ip(ip, &old_ips, &at.field("ip"), errors);
        }
        if has_ip_mode {
            ip_mode(ingress, &at.field("ipMode"), errors);
        }
        let hostname = ingress.text("hostname");
        if !hostname.is_empty() {
            errors.invalid_each(&at.field("hostname"), hostname, names::is_dns1123_subdomain(hostname));
            if names::parse_ip_sloppy(hostname).is_some() {
                errors.invalid(&at.field("hostname"), hostname, "must be a DNS name, not an IP address");
            }
        }
    }
}

fn ip_mode(ingress: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let has_ip = !ingress.text("ip").is_empty();
    match ingress.text_if_set("ipMode") {
        None if has_ip => errors.required(at, "must be specified when `ip` is set"),
        Some(_) if !has_ip => errors.forbidden(at, "may not be specified when `ip` is not set"),
        None | Some("VIP" | "Proxy") => {}
        Some(other) => errors.not_supported(at, other, &["Proxy", "VIP"]),
    }
}

/// Parses a CIDR, with or without leading zeros in its octets.
pub(super) fn network(cidr: &str) -> Option<ipnet::IpNet> {
    let (ip, bits) = names::parse_cidr_sloppy(cidr)?;
    ipnet::IpNet::new(ip, bits).ok()
}
