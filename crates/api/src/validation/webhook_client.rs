//! The rules for the `clientConfig` of a webhook, shared by admission webhooks and the conversion webhooks of CRDs.

use value::Value;
use value::go::url::Url;

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
    let parts = match Url::parse(url) {
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
    if let Some(user) = parts.userinfo() {
        errors.invalid(at, user.as_str(), "user information is not permitted in the URL");
    }
    if !parts.fragment().is_empty() {
        errors.invalid(at, &*parts.fragment(), "fragments are not permitted in the URL");
    }
    if !parts.raw_query.is_empty() {
        errors.invalid(at, parts.raw_query.as_str(), "query parameters are not permitted in the URL");
    }
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
