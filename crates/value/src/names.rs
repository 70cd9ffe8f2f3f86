//! DNS names, label keys and label values, as in Kubernetes' `util/validation`. Every function returns Kubernetes' error
//! messages; an empty list means that the text is valid.

/// Upper bound of a DNS label in bytes.
pub const LABEL_MAX: usize = 63;
/// Upper bound of a DNS subdomain in bytes.
pub const SUBDOMAIN_MAX: usize = 253;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Message for a text longer than `max` characters.
pub fn max_len_error(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Message for a text that does not match `regex`.
pub fn regex_error(words: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

/// Message for an empty text.
pub const EMPTY_ERROR: &str = "must be non-empty";

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// True if all bytes are `inner`, and the first and last are `outer`.
fn is_bracketed(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| outer(*b))
        && bytes.last().is_some_and(|b| outer(*b))
        && bytes.iter().all(|b| inner(*b))
}

fn matches_dns1123_label(text: &str) -> bool {
    is_bracketed(text, is_lower_alnum, |b| is_lower_alnum(b) || b == b'-')
}

fn matches_dns1123_subdomain(text: &str) -> bool {
    text.split('.').all(matches_dns1123_label)
}

fn matches_label_key(text: &str) -> bool {
    is_bracketed(text, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// A lowercase RFC 1123 label: `my-name`.
pub fn is_dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(max_len_error(LABEL_MAX));
    }
    if !matches_dns1123_label(text) {
        errors.push(if matches_dns1123_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

fn subdomain(text: &str, too_long: impl Fn() -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long());
    }
    if !matches_dns1123_subdomain(text) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    errors
}

/// A lowercase RFC 1123 subdomain: `example.com`.
pub fn is_dns1123_subdomain(text: &str) -> Vec<String> {
    subdomain(text, || max_len_error(SUBDOMAIN_MAX))
}

/// An RFC 1123 subdomain in letters of either case.
pub fn is_dns1123_subdomain_caseless(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(format!("must be no more than {SUBDOMAIN_MAX} bytes"));
    }
    if !matches_dns1123_subdomain(&text.to_ascii_lowercase()) {
        errors.push(regex_error(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["Example.com"],
        ));
    }
    errors
}

/// An RFC 1123 subdomain whose labels may contain, and begin with, underscores.
pub fn is_dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(max_len_error(SUBDOMAIN_MAX));
    }
    let fits = text.split('.').all(|label| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_bracketed(label, is_lower_alnum, |b| is_lower_alnum(b) || b == b'-' || b == b'_')
    });
    if !fits {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

/// An RFC 1123 subdomain after `*.`.
pub fn is_wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(max_len_error(SUBDOMAIN_MAX));
    }
    if !text.strip_prefix("*.").is_some_and(matches_dns1123_subdomain) {
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{DNS1123_SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    errors
}

/// An RFC 1035 label: like RFC 1123, but it begins with a letter.
pub fn is_dns1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(max_len_error(LABEL_MAX));
    }
    if !(matches_dns1123_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A label key (Kubernetes' "qualified name"): `name` or `example.com/name`.
pub fn is_qualified_name(text: &str) -> Vec<String> {
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            let words = regex_error(LABEL_KEY_WORDS, LABEL_KEY, &EXAMPLES);
            return vec![format!(
                "a valid label key {words} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push(format!("prefix part {EMPTY_ERROR}"));
            } else {
                let wrong = subdomain(prefix, || format!("must be no more than {SUBDOMAIN_MAX} bytes"));
                errors.extend(wrong.into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push(format!("name part {EMPTY_ERROR}"));
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !matches_label_key(name) {
        errors.push(format!("name part {}", regex_error(LABEL_KEY_WORDS, LABEL_KEY, &EXAMPLES)));
    }
    errors
}

/// A label value: empty, or like the name part of a label key.
pub fn is_valid_label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !(text.is_empty() || matches_label_key(text)) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}
