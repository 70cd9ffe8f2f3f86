//! IP addresses and CIDRs, in the lenient forms that old fields accept and in canonical form.

use std::net::IpAddr;

use value::go::netip::{is_mapped, masked, parse_cidr_sloppy, parse_ip_sloppy};

use crate::field::quote;

/// Prints an address as Go does: IPv4-mapped IPv6 addresses print as IPv4.
fn go_text(ip: IpAddr) -> String {
    ip.to_canonical().to_string()
}

/// Validates an address in a field that predates strict validation. With `strict`, refuses leading zeros and
/// IPv4-mapped IPv6.
pub fn is_valid_ip_for_legacy_field(text: &str, strict: bool) -> Vec<String> {
    let Some(ip) = parse_ip_sloppy(text) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    if strict && text.parse::<IpAddr>().is_err() {
        return vec!["must not have leading 0s".to_owned()];
    }
    if strict && is_mapped(ip) {
        return vec!["must not be an IPv4-mapped IPv6 address".to_owned()];
    }
    Vec::new()
}

/// Validates an address in canonical form.
pub fn is_valid_ip(text: &str) -> Vec<String> {
    let errors = is_valid_ip_for_legacy_field(text, true);
    if !errors.is_empty() {
        return errors;
    }
    match parse_ip_sloppy(text).map(go_text) {
        Some(canonical) if canonical != text => {
            vec![format!("must be in canonical form ({})", quote(&canonical))]
        }
        _ => Vec::new(),
    }
}

/// The warning for an address whose form is no longer recommended; `field` names the field.
pub fn ip_warning(field: &str, text: &str) -> Option<String> {
    let canonical = go_text(parse_ip_sloppy(text)?);
    match text.parse::<IpAddr>() {
        Ok(ip) if !is_mapped(ip) => (ip.is_ipv6() && ip.to_string() != text).then(|| {
            format!(
                "{field}: IPv6 address {} should be in RFC 5952 canonical format ({})",
                quote(text),
                quote(&ip.to_string())
            )
        }),
        _ => Some(format!(
            "{field}: non-standard IP address {} is invalid: use {}",
            quote(text),
            quote(&canonical)
        )),
    }
}

/// Prints a network as Go does.
fn network_text(ip: IpAddr, bits: u8) -> String {
    let base = masked(ip, bits);
    let bits = if is_mapped(base) && bits >= 96 { bits - 96 } else { bits };
    format!("{}/{bits}", go_text(base))
}

/// Validates a CIDR in a field that predates strict validation.
pub fn is_valid_cidr_for_legacy_field(text: &str, strict: bool) -> Vec<String> {
    let Some((ip, bits)) = parse_cidr_sloppy(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    if !strict {
        return Vec::new();
    }
    let plain = text
        .split_once('/')
        .is_some_and(|(address, b)| address.parse::<IpAddr>().is_ok() && (b == "0" || !b.starts_with('0')));
    let error = if !plain {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(ip) {
        "must not have an IPv4-mapped IPv6 address"
    } else if masked(ip, bits) != ip {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![error.to_owned()]
}

/// Validates a CIDR in canonical form.
pub fn is_valid_cidr(text: &str) -> Vec<String> {
    let errors = is_valid_cidr_for_legacy_field(text, true);
    if !errors.is_empty() {
        return errors;
    }
    match parse_cidr_sloppy(text).map(|(ip, bits)| network_text(ip, bits)) {
        Some(canonical) if canonical != text => {
            vec![format!("must be in canonical form ({})", quote(&canonical))]
        }
        _ => Vec::new(),
    }
}

/// Validates an address with a prefix length, in canonical form.
pub fn is_valid_interface_address(text: &str) -> Vec<String> {
    let Some((ip, bits)) = parse_cidr_sloppy(text) else {
        return vec!["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".to_owned()];
    };
    let bits = if is_mapped(ip) && bits > 32 { bits.saturating_sub(96) } else { bits };
    let canonical = format!("{}/{bits}", go_text(ip));
    if canonical == text {
        return Vec::new();
    }
    vec![format!("must be in canonical form ({})", quote(&canonical))]
}

/// The warnings for a CIDR whose form is no longer recommended; `field` names the field.
pub fn cidr_warnings(field: &str, text: &str) -> Vec<String> {
    let Some((ip, bits)) = parse_cidr_sloppy(text) else { return Vec::new() };
    let network = network_text(ip, bits);
    let mut warnings = Vec::new();
    if masked(ip, bits) != ip {
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let single = format!("{}/{most}", go_text(ip));
        warnings.push(format!(
            "{field}: CIDR value {} is ambiguous in this context (should be {} or {}?)",
            quote(text),
            quote(&network),
            quote(&single)
        ));
    }
    let strict = is_valid_cidr_for_legacy_field(text, true);
    if strict.iter().any(|e| e.contains("leading 0s") || e.contains("IPv4-mapped")) {
        warnings.push(format!(
            "{field}: non-standard CIDR value {} is invalid: use {}",
            quote(text),
            quote(&network)
        ));
    }
    if warnings.is_empty() && ip.is_ipv6() && network != text {
        warnings.push(format!(
            "{field}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&network)
        ));
    }
    warnings
}
