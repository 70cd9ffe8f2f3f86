//! Validates the string formats of schemas as Kubernetes' validation library (go-openapi/strfmt) does.

use std::sync::LazyLock;

use api::time::parse_duration;
use cel::pattern::Pattern;
use value::Value;
use value::go::netip::{parse_addr, parse_cidr_sloppy, parse_ip_sloppy};
use value::go::url::Url;
use value::names::{is_dns1123_label, is_dns1123_subdomain};
use value::strfmt;

use api::validation::fields::Read;

/// The known string formats, without dashes.
const STRINGS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// The format of a schema if Kubernetes does not recognize it for the schema's type; such formats are ignored.
pub fn unrecognized(schema: &Value) -> Option<&str> {
    unrecognized_of(schema, schema.text("type"))
}

/// Whether validation ignores the format. Unlike [`unrecognized`], `x-kubernetes-int-or-string` counts as a schema without a type.
pub(super) fn ignored(schema: &Value) -> bool {
    let kind = if schema.flag("x-kubernetes-int-or-string") { "" } else { schema.text("type") };
    unrecognized_of(schema, kind).is_some()
}

fn unrecognized_of<'s>(schema: &'s Value, kind: &str) -> Option<&'s str> {
    let format = schema.text("format");
    let known = match kind {
        _ if format.is_empty() => true,
        "" | "string" => STRINGS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    (!known).then_some(format)
}

pub(super) fn is_of_strings(format: &str) -> bool {
    STRINGS.contains(&format.replace('-', "").as_str())
}

pub(super) fn is_valid(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => Url::parse_request_uri(text).is_ok(),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && parse_ip_sloppy(text).is_some(),
        "ipv6" => text.contains(':') && parse_addr(text).is_ok_and(|(_, has_zone)| !has_zone),
        "cidr" => parse_cidr_sloppy(text).is_some(),
        "mac" => is_mac(text),
        "uuid" => strfmt::is_uuid(text),
        "uuid3" => matches(&UUID3, text),
        "uuid4" => matches(&UUID4, text),
        "uuid5" => matches(&UUID5, text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => matches(&SSN, text),
        "hexcolor" => matches(&HEX_COLOR, text),
        "rgbcolor" => matches(&RGB_COLOR, text),
        "byte" => strfmt::is_base64(text),
        "date" => strfmt::is_date(text),
        "duration" => is_duration(text),
        "datetime" => strfmt::is_date_time(text),
        "k8sshortname" => is_dns1123_label(text).is_empty(),
        "k8slongname" => is_dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

type Lazy = LazyLock<Option<Pattern>>;

macro_rules! patterns {
    ($($name:ident = $text:expr;)*) => { $(static $name: Lazy = LazyLock::new(|| Pattern::compile($text).ok());)* };
}

patterns! {
    HOST_CHARACTERS = r"^[a-zA-Z0-9\p{S}\p{L}]*$";
    LETTERS = r"^[a-zA-Z\p{L}]*$";
    UUID3 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    SSN = r"^\d{3}[- ]?\d{2}[- ]?\d{4}$";
    HEX_COLOR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$";
    CREDIT_CARD = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}|6[27][0-9]{14})$";
    ISBN10 = r"^(?:[0-9]{9}X|[0-9]{10})$";
    ISBN13 = r"^(?:[0-9]{13})$";
}

fn matches(pattern: &Lazy, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Accepts one label, which may contain a dash only as its second character, or several labels of which the last has only letters.
fn is_hostname(text: &str) -> bool {
    if text.len() > 255 || text.split('.').any(|part| part.len() > 63) {
        return false;
    }
    let plain = |part: &str| matches(&HOST_CHARACTERS, part);
    let Some((head, last)) = text.rsplit_once('.') else {
        let mut rest = text.chars();
        let first = rest.next().map(String::from).unwrap_or_default();
        let rest = rest.as_str();
        return !first.is_empty() && plain(&first) && plain(rest.strip_prefix('-').unwrap_or(rest));
    };
    let label = |part: &str| {
        !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && plain(&part.replace('-', ""))
    };
    last.chars().count() >= 2 && matches(&LETTERS, last) && head.split('.').all(label)
}

/// Addresses of 6, 8 or 20 bytes, as pairs of hex digits separated by `:` or `-`, or as groups of four separated by `.`.
fn is_mac(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == width && is_hex(part))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

/// One address, with or without a name and angle brackets, as accepted by `net/mail.ParseAddress`.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match (text.find('<'), text.strip_suffix('>')) {
        (Some(at), Some(_)) => text.get(at + 1..text.len() - 1).unwrap_or_default(),
        (None, None) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| {
                !c.is_whitespace()
                    && !c.is_control()
                    && !matches!(c, '(' | ')' | '<' | '>' | '[' | ']' | ':' | ';' | '@' | '\\' | ',' | '"')
            })
    };
    let dotted = |text: &str| text.split('.').all(atom);
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']') && domain.len() > 2;
    (quoted || dotted(local)) && (literal || dotted(domain))
}

fn is_isbn10(text: &str) -> bool {
    let plain = text.replace(['-', ' '], "");
    if !matches(&ISBN10, &plain) {
        return false;
    }
    let digit = |b: u8| if b == b'X' { 10 } else { u32::from(b - b'0') };
    let sum: u32 = plain.bytes().zip(1..).map(|(b, weight)| weight * digit(b)).sum();
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let plain = text.replace(['-', ' '], "");
    if !matches(&ISBN13, &plain) {
        return false;
    }
    let sum: u32 =
        plain.bytes().enumerate().map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 3 }).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !matches(&CREDIT_CARD, &digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let digit = u32::from(b - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if digit >= 10 { digit % 10 + 1 } else { digit }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The accepted spellings of each time unit. A longer word that starts with the last spelling is also accepted.
const UNITS: &[&[&str]] = &[
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

/// A Go duration, or Scala-style numbers with unit words.
fn is_duration(text: &str) -> bool {
    if parse_duration(text).is_ok() {
        return true;
    }
    let mut found = false;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(at..).unwrap_or_default();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest.get(..digits).unwrap_or_default();
        rest = rest.get(digits..).unwrap_or_default();
        let word = rest.trim_start();
        let letters = word.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(word.len());
        let unit = word.get(..letters).unwrap_or_default().to_lowercase();
        if unit.is_empty() {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        rest = word.get(letters..).unwrap_or_default();
        found |= UNITS.iter().any(|names| {
            names.contains(&unit.as_str()) || names.last().is_some_and(|last| unit.starts_with(last))
        });
    }
    found
}
