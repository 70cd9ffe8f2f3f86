//! Validation of Windows options: group managed service accounts, user names and `hostProcess` containers.

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::{Value, write};

use super::options::PodValidationOptions;
use crate::pod_containers::visit_containers;

const MAX_CREDENTIAL_SPEC: usize = 64 << 10;
const MAX_USER_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

pub(super) fn windows_options(context: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(options) = context.part("windowsOptions") else { return };
    let at = at.field("windowsOptions");
    if let Some(name) = options.text_if_set("gmsaCredentialSpecName") {
        errors.invalid_each(&at.field("gmsaCredentialSpecName"), name, names::is_dns1123_subdomain(name));
    }
    if let Some(spec) = options.text_if_set("gmsaCredentialSpec") {
        let at = at.field("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > MAX_CREDENTIAL_SPEC {
            errors.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.text_if_set("runAsUserName") {
        windows_user(name, &at.field("runAsUserName"), errors);
    }
}

/// kube-apiserver prints this name as JSON, which escapes characters differently from a quoted string.
fn windows_user(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let json = write::to_string(&name.into());
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        _ if name.is_empty() => {
            return errors.invalid_json(at, &json, "runAsUserName cannot be an empty string");
        }
        _ if name.contains(|c: char| c.is_ascii_control()) => {
            return errors.invalid_json(at, &json, "runAsUserName cannot contain control characters");
        }
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return errors.invalid_json(at, &json, "runAsUserName cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= MAX_USER_DOMAIN) {
        let detail = format!("runAsUserName's Domain length must be under {MAX_USER_DOMAIN} characters");
        errors.invalid_json(at, &json, &detail);
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_windows_dns(domain)) {
        let detail = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
        errors.invalid_json(at, &json, detail);
    }
    if user.is_empty() {
        errors.invalid_json(at, &json, "runAsUserName's User cannot be empty");
    } else if user.len() > MAX_USER {
        let detail = format!("runAsUserName's User length must not be longer than {MAX_USER} characters");
        errors.invalid_json(at, &json, &detail);
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        errors.invalid_json(at, &json, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let detail = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        errors.invalid_json(at, &json, detail);
    }
}

fn is_net_bios(domain: &str) -> bool {
    let allowed = |c: char| !matches!(c, '\\' | '/' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    !domain.is_empty()
        && domain.chars().count() <= 15
        && !domain.starts_with('.')
        && domain.chars().all(allowed)
}

fn is_windows_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let is_word = |c: char| c.is_ascii_alphanumeric();
        label.len() <= 63
            && label.starts_with(is_word)
            && label.ends_with(is_word)
            && label.chars().all(|c| is_word(c) || c == '-')
    })
}

/// Validates Windows `hostProcess` containers of a pod.
pub(in crate::validation) fn host_processes(
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let host_process = |holder: &Value| {
        holder.part("securityContext").part("windowsOptions").and_then(|o| o.flag_if_set("hostProcess"))
    };
    let pod = host_process(spec);
    let (mut count, mut on_host) = (0, 0);
    visit_containers(spec, at, |container, at| {
        count += 1;
        let own = host_process(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&at.field("securityContext.windowsOptions.hostProcess"), own, detail);
        }
        if own.or(pod) == Some(true) {
            on_host += 1;
        }
    });
    if on_host == 0 {
        return;
    }
    if on_host != count {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(at, "", detail);
    }
    if !spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&at.field("hostNetwork"), false, detail);
    }
    if !options.allow_privileged {
        errors.forbidden(at, "hostProcess containers are disallowed by cluster policy");
    }
}
