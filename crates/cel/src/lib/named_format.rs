//! The format library: named formats such as `format.dns1123Label()`.

use value::go::url::Url;
use value::names::{
    is_dns1035_label, is_dns1123_label, is_dns1123_subdomain, is_qualified_name, is_valid_label_value,
};
use value::strfmt;

use super::{Ext, ext, string};

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
    ("dns1123Label", "format.dns1123Label", "DNS1123Label", 30, is_dns1123_label),
    ("dns1123Subdomain", "format.dns1123Subdomain", "DNS1123Subdomain", 60, is_dns1123_subdomain),
    ("dns1035Label", "format.dns1035Label", "DNS1035Label", 30, is_dns1035_label),
    ("qualifiedName", "format.qualifiedName", "QualifiedName", 60, is_qualified_name),
    ("dns1123LabelPrefix", "format.dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| is_dns1123_label(
        &unprefixed(text)
    )),
    ("dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        is_dns1123_subdomain(&unprefixed(text))
    }),
    ("dns1035LabelPrefix", "format.dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| is_dns1035_label(
        &unprefixed(text)
    )),
    ("labelValue", "format.labelValue", "LabelValue", 40, is_valid_label_value),
    ("uri", "format.uri", "URI", 1103, |text| Url::parse_request_uri(text).err().into_iter().collect()),
    ("uuid", "format.uuid", "uuid", 70, |text| unless(
        strfmt::is_uuid(text),
        "does not match the UUID format"
    )),
    ("byte", "format.byte", "byte", 84, |text| unless(strfmt::is_base64(text), "invalid base64")),
    ("date", "format.date", "date", 71, |text| unless(strfmt::is_date(text), "invalid date")),
    ("datetime", "format.datetime", "datetime", 71, |text| unless(
        strfmt::is_date_time(text),
        "invalid datetime"
    )),
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
