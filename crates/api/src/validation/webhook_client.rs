//! The rules for the `clientConfig` of a webhook, shared by admission webhooks and the conversion webhooks of CRDs.

use value::Value;
use value::text::bad_percent_escape;

use super::fields::{At, Read, Report};
use crate::{FieldErrors, names};

/// Validates a `clientConfig`: exactly one of `url` and `service` must be set.
pub fn client_config(config: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match (config.text_if_set("url"), config.part("service")) {
        (Some(url), None) => webhook_url(url, &at.field("url"), errors),
        (None, Some(service)) => webhook_service(service, &at.field("service"), errors),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

fn webhook_url(url: &str, at: &At<'_>, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let parts = match UrlParts::parse(url) {
        Ok(parts) => parts,
        Err(why) => {
            errors.required(at, format!("url must be a valid URL: {why}{FORM}"));
            return;
        }
    };
    if parts.scheme != "https" {
        errors.invalid(at, parts.scheme.as_str(), format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if parts.host.is_empty() {
        errors.invalid(at, "", format!("host must be specified{FORM}"));
    }
    if let Some(user) = parts.user {
        errors.invalid(at, user, "user information is not permitted in the URL");
    }
    if !parts.fragment.is_empty() {
        errors.invalid(at, parts.fragment, "fragments are not permitted in the URL");
    }
    if !parts.query.is_empty() {
        errors.invalid(at, parts.query, "query parameters are not permitted in the URL");
    }
}

/// The parts of a URL that the rules examine, split like Go's `net/url`.
struct UrlParts<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> UrlParts<'a> {
    fn parse(url: &'a str) -> Result<Self, String> {
        let quoted = crate::field::quote(url);
        let refused = |why: &str| Err(format!("parse {quoted}: {why}"));
        if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return refused("net/url: invalid control character in URL");
        }
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        let (scheme, rest) = match rest.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_lowercase(), rest),
            Some(("", _)) => return refused("missing protocol scheme"),
            Some((before, _)) if !before.contains('/') => {
                return refused("first path segment in URL cannot contain colon");
            }
            _ => (String::new(), rest),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some(authority) = rest.strip_prefix("//") else {
            let is_path = scheme.is_empty() || rest.starts_with('/');
            if let Some(escape) =
                bad_percent_escape(rest).filter(|_| is_path).or_else(|| bad_percent_escape(fragment))
            {
                return refused(&invalid_escape(&escape));
            }
            return Ok(UrlParts { scheme, user: None, host: "", query, fragment });
        };
        let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.contains(' ') {
            return refused("invalid character \" \" in host name");
        }
        if !host.starts_with('[')
            && let Some((_, port)) = host.rsplit_once(':')
            && !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return refused(&format!("invalid port {} after host", crate::field::quote(&format!(":{port}"))));
        }
        if let Some(escape) = [host, path, fragment].into_iter().find_map(bad_percent_escape) {
            return refused(&invalid_escape(&escape));
        }
        Ok(UrlParts { scheme, user, host, query, fragment })
    }
}

fn invalid_escape(escape: &str) -> String {
    format!("invalid URL escape {}", crate::field::quote(escape))
}

/// Validates a service reference. Like kube-apiserver, it reports a missing namespace at `name` and a missing name at `namespace`.
fn webhook_service(service: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if service.text("namespace").is_empty() {
        errors.required(&at.field("name"), "");
    }
    if service.text("name").is_empty() {
        errors.required(&at.field("namespace"), "");
    }
    let port = service.number("port");
    let wrong = names::is_valid_port_num(port);
    if !wrong.is_empty() {
        errors.invalid(&at.field("port"), port, format!("port is not valid: {}", wrong.join(", ")));
    }
    let path = service.text("path");
    let at = at.field("path");
    match path {
        "" | "/" => return,
        "//" => {
            errors.invalid(&at, path, "segment[0] may not be empty");
            return;
        }
        _ => {}
    }
    if !path.starts_with('/') {
        errors.invalid(&at, path, "must start with a '/'");
    }
    let mut chars = path.chars();
    chars.next();
    let steps = chars.as_str();
    for (i, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, path, format!("segment[{i}] may not be empty"));
            continue;
        }
        for error in names::is_dns1123_subdomain(step) {
            errors.invalid(&at, path, format!("segment[{i}]: {error}"));
        }
    }
}
