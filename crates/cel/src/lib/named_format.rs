//! The format library: named formats such as `format.dns1123Label()`.

use super::{Ext, ext, string, url};
use value::time::days_in_month;

use crate::env::Builder;
use crate::eval::{CallContext, EvalResult};
use crate::val::Val;

/// A named format with its validation function.
pub struct NamedFormat {
    /// The name that the value prints as.
    pub(crate) name: &'static str,
    /// The name in `format.named` and `format.NAME()`.
    key: &'static str,
    validate: fn(&str) -> Vec<String>,
    /// Length of the pattern that Kubernetes assumes for the cost of validating.
    pub(crate) pattern_length: u64,
}

impl std::fmt::Debug for NamedFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! formats {
    ($(($key:literal, $function:literal, $name:literal, $length:literal, $validate:expr)),* $(,)?) => {
        /// All named formats of Kubernetes.
        static FORMATS: &[NamedFormat] = &[$(NamedFormat {
            name: $name,
            key: $key,
            validate: $validate,
            pattern_length: $length,
        }),*];

        /// Declares `format.NAME()`, `format.named` and `validate`.
        pub(crate) fn add(b: &mut Builder) {
            $(
                b.function($function, &[($function, "() -> kubernetes.NamedFormat", |_, _| Ok(named($key)))]);
            )*
            b.function("format.named", &[("format-named", "(string) -> optional(kubernetes.NamedFormat)", |_, args| {
                let key = string(args, 0)?;
                Ok(match FORMATS.iter().find(|format| format.key == key) {
                    Some(format) => Val::some(Val::ext(Ext::Format(format))),
                    None => Val::NONE,
                })
            })]);
            b.function("validate", &[(
                "format-validate",
                "kubernetes.NamedFormat.(string) -> optional(list(string))",
                validate,
            )]);
        }
    };
}

formats![
    ("dns1123Label", "format.dns1123Label", "DNS1123Label", 30, dns1123_label),
    ("dns1123Subdomain", "format.dns1123Subdomain", "DNS1123Subdomain", 60, dns1123_subdomain),
    ("dns1035Label", "format.dns1035Label", "DNS1035Label", 30, dns1035_label),
    ("qualifiedName", "format.qualifiedName", "QualifiedName", 60, qualified_name),
    ("dns1123LabelPrefix", "format.dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| dns1123_label(
        &unprefixed(text)
    )),
    ("dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        dns1123_subdomain(&unprefixed(text))
    }),
    ("dns1035LabelPrefix", "format.dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| dns1035_label(
        &unprefixed(text)
    )),
    ("labelValue", "format.labelValue", "LabelValue", 40, label_value),
    ("uri", "format.uri", "URI", 1103, |text| url::parse_request(text).err().into_iter().collect()),
    ("uuid", "format.uuid", "uuid", 70, |text| unless(is_uuid(text), "does not match the UUID format")),
    ("byte", "format.byte", "byte", 84, |text| unless(is_base64(text), "invalid base64")),
    ("date", "format.date", "date", 71, |text| unless(is_date(text), "invalid date")),
    ("datetime", "format.datetime", "datetime", 71, |text| unless(is_datetime(text), "invalid datetime")),
];

fn named<'a>(key: &str) -> Val<'a> {
    match FORMATS.iter().find(|format| format.key == key) {
        Some(format) => Val::ext(Ext::Format(format)),
        None => Val::Null,
    }
}

fn validate<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let Ext::Format(format) = ext(args, 0)? else { return super::refuse() };
    let problems = (format.validate)(string(args, 1)?);
    Ok(if problems.is_empty() { Val::NONE } else { Val::some(Val::strings(problems)) })
}

fn unless(valid: bool, problem: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![problem.to_owned()] }
}

/// Replaces the trailing dash of a name prefix, as Kubernetes does before validating it.
fn unprefixed(text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    if chars.len() > 1 && chars.last() == Some(&'-') {
        chars.truncate(chars.len() - 2);
        chars.push('a');
    }
    chars.into_iter().collect()
}

/// Message of most formats for a text that is too long.
fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

/// Message of label names and values for a text that is too long.
fn too_many_bytes(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn dns1123_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(text) {
        problems.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '{LABEL}')"
            )
        });
    }
    problems
}

fn dns1123_subdomain(text: &str) -> Vec<String> {
    subdomain(text, too_long)
}

fn subdomain(text: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    if !is_subdomain(text) {
        problems.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN}')"
        ));
    }
    problems
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let end = |c: char| c.is_ascii_alphanumeric();
    text.bytes().all(inner) && text.starts_with(end) && text.ends_with(end)
}

fn qualified_name(text: &str) -> Vec<String> {
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                        is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut problems = Vec::new();
    let mut parts = text.splitn(3, '/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if parts.next().is_some() {
        return vec![
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
             'example.com/MyName')"
                .to_owned(),
        ];
    }
    let name = match second {
        Some(name) => {
            if first.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    subdomain(first, too_many_bytes)
                        .into_iter()
                        .map(|problem| format!("prefix part {problem}")),
                );
            }
            name
        }
        None => first,
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_many_bytes(63)));
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME}"));
    }
    problems
}

fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_many_bytes(63));
    }
    if !text.is_empty() && !is_name(text) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

/// Five groups of hexadecimal digits, with optional dashes between them.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((group, after)) if group.bytes().all(|b| b.is_ascii_hexdigit()) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(plain)
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut number = |length: usize| {
        let part = parts.next()?;
        (part.len() == length && part.bytes().all(|b| b.is_ascii_digit()))
            .then(|| part.parse::<i64>().ok())?
    };
    let (Some(year), Some(month), Some(day)) = (number(4), number(2), number(2)) else { return false };
    parts.next().is_none() && (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day)
}

fn is_datetime(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if lower.len() < 4 || !is_date(date) {
        return false;
    }
    // The time of day and the offset are compared as text, so any two digits pass as the offset.
    let shaped = {
        let bytes = time.as_bytes();
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let clock = digit(0)
            && digit(1)
            && bytes.get(2) == Some(&b':')
            && digit(3)
            && digit(4)
            && bytes.get(5) == Some(&b':')
            && digit(6)
            && digit(7);
        let mut rest = time.get(8..).unwrap_or_default();
        // Any character may precede the fraction.
        let mut chars = rest.chars();
        if let Some(separator) = chars.next()
            && !matches!(separator, 'z')
        {
            let after = chars.as_str();
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let tail = after.get(digits..).unwrap_or_default();
            if digits > 0 && (tail == "z" || is_offset(tail)) {
                rest = tail;
            }
        }
        clock && (rest == "z" || is_offset(rest))
    };
    shaped
        && time.get(..2).is_some_and(|hour| hour <= "23")
        && time.get(3..5).is_some_and(|minute| minute <= "59")
        && time.get(6..8).is_some_and(|second| second <= "59")
}

fn is_offset(text: &str) -> bool {
    match text.as_bytes() {
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].into_iter().all(u8::is_ascii_digit),
        _ => false,
    }
}
