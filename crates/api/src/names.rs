//! Validates names, labels, ports, headers and addresses. Every function returns Kubernetes' error messages; an empty
//! list means that the text is valid.

mod addresses;

use value::Path;

pub use self::addresses::{
    cidr_warnings, ip_warning, is_valid_cidr, is_valid_cidr_for_legacy_field, is_valid_interface_address,
    is_valid_ip, is_valid_ip_for_legacy_field,
};
use crate::field::{FieldError, FieldErrors};
pub use value::go::netip::{parse_cidr_sloppy, parse_ip_sloppy};
pub use value::names::{
    EMPTY_ERROR, LABEL_MAX, SUBDOMAIN_MAX, is_dns1035_label, is_dns1123_label, is_dns1123_subdomain,
    is_dns1123_subdomain_caseless, is_dns1123_subdomain_with_underscore, is_qualified_name,
    is_valid_label_value, is_wildcard_dns1123_subdomain, max_len_error, regex_error,
};

/// Message for a number outside a range.
pub fn inclusive_range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// An identifier of the C language.
pub fn is_c_identifier(text: &str) -> Vec<String> {
    let fits = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if fits {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// A port number, 1 to 65535.
pub fn is_valid_port_num(port: i64) -> Vec<String> {
    is_in_range(port, 1, 65535)
}

/// A number from `low` to `high`, both inclusive.
pub fn is_in_range(number: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&number) { Vec::new() } else { vec![inclusive_range_error(low, high)] }
}

/// A Unix user or group id.
pub fn is_valid_user_id(id: i64) -> Vec<String> {
    is_in_range(id, 0, i64::from(i32::MAX))
}

/// A port name: `http`, `metrics-2`.
pub fn is_valid_port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(max_len_error(15));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A percentage such as `25%`.
pub fn is_valid_percent(text: &str) -> Vec<String> {
    let number = text.strip_suffix('%').unwrap_or_default();
    if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

pub fn is_http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// The name of an environment variable: printable ASCII except `=`.
pub fn is_relaxed_env_var_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.is_empty() {
        errors.push(format!("environment variable name {EMPTY_ERROR}"));
    }
    if text.bytes().any(|b| !(b' '..=b'~').contains(&b) || b == b'=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn is_config_map_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(max_len_error(SUBDOMAIN_MAX));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(parent_folder_prefix(text));
    errors
}

fn parent_folder_prefix(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("must not be '{text}'")),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// A name that is valid as one segment of a URL path.
pub fn is_path_segment_name(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    is_path_segment_prefix(text)
}

/// A prefix of such a segment.
pub fn is_path_segment_prefix(text: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|part| text.contains(part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// A decimal integer without leading zeros.
pub fn is_decimal_integer(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec![EMPTY_ERROR.to_owned()];
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let fits = text == "0"
        || (digits.starts_with(|c: char| ('1'..='9').contains(&c))
            && digits.bytes().all(|b| b.is_ascii_digit()));
    if fits { Vec::new() } else { vec!["must be a valid decimal integer in canonical form".to_owned()] }
}

/// An object name that must be a DNS subdomain. With `prefix`, the prefix of such a name (`generateName`).
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_subdomain(&without_trailing_dash(name, prefix))
}

/// An object name that must be a DNS label, or with `prefix` the prefix of one.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_label(&without_trailing_dash(name, prefix))
}

/// Replaces the trailing dash of a prefix by a letter, because generated characters will follow it.
fn without_trailing_dash(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    match name.strip_suffix('-') {
        // Kubernetes replaces the last two bytes by an `a`; a multi-byte character before the dash is invalid anyway.
        Some(stem) if prefix && stem.ends_with(|c: char| c.is_ascii()) => {
            let mut chars = stem.chars();
            chars.next_back();
            format!("{}a", chars.as_str()).into()
        }
        _ => name.into(),
    }
}

/// A domain name of at least three labels.
pub fn is_fully_qualified_name(path: &Path, name: &str) -> FieldErrors {
    if name.is_empty() {
        return FieldErrors::from([FieldError::required(path, "")]);
    }
    let errors = is_dns1123_subdomain(name);
    if !errors.is_empty() {
        return FieldErrors::from([FieldError::invalid(path, name, errors.join(","))]);
    }
    if name.split('.').count() < 3 {
        let words = "should be a domain with at least three segments separated by dots";
        return FieldErrors::from([FieldError::invalid(path, name, words)]);
    }
    FieldErrors::new()
}

/// A domain name of at least two labels, with an optional trailing dot.
pub fn is_fully_qualified_domain_name(path: &Path, name: &str) -> FieldErrors {
    if name.is_empty() {
        return FieldErrors::from([FieldError::required(path, "")]);
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let errors = is_dns1123_subdomain(name);
    if !errors.is_empty() {
        return FieldErrors::from([FieldError::invalid(path, name, errors.join(","))]);
    }
    if name.split('.').count() < 2 {
        let words = "should be a domain with at least two segments separated by dots";
        return FieldErrors::from([FieldError::invalid(path, name, words)]);
    }
    let wrong = name.split('.').map(|label| (label, is_dns1123_label(label))).find(|(_, e)| !e.is_empty());
    wrong.map(|(label, errors)| FieldError::invalid(path, label, errors.join(","))).into_iter().collect()
}

/// A path after a domain: `acme.io/foo`.
pub fn is_domain_prefixed_path(path: &Path, text: &str) -> FieldErrors {
    if text.is_empty() {
        return FieldErrors::from([FieldError::required(path, "")]);
    }
    let Some((host, rest)) = text.split_once('/').filter(|(h, r)| !h.is_empty() && !r.is_empty()) else {
        let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return FieldErrors::from([FieldError::invalid(path, text, words)]);
    };
    let mut errors: FieldErrors =
        is_dns1123_subdomain(host).into_iter().map(|e| FieldError::invalid(path, host, e)).collect();
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let words = regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid(path, rest, words));
    }
    errors
}

/// A label key with a domain: `acme.io/foo`.
pub fn is_domain_prefixed_key(path: &Path, key: &str) -> FieldErrors {
    if key.is_empty() {
        return FieldErrors::from([FieldError::required(path, "")]);
    }
    let errors: FieldErrors =
        is_qualified_name(key).into_iter().map(|e| FieldError::invalid(path, key, e)).collect();
    if errors.is_empty() && !key.contains('/') {
        let words = "must be a domain-prefixed key (such as \"acme.io/foo\")";
        return FieldErrors::from([FieldError::invalid(path, key, words)]);
    }
    errors
}

#[cfg(test)]
mod tests;
