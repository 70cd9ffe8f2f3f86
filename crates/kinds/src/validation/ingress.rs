//! Validation of Ingress and IngressClass.

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use value::Value;

use super::addresses::load_balancer_status;
use super::ports::port_number;
use super::{ValidationContext, ValidationRules, no_rules, required_name};

pub(crate) const INGRESS: ValidationRules =
    ValidationRules { create: ingress, update: ingress_update, update_status: ingress_status_update };
pub(crate) const INGRESS_CLASS: ValidationRules =
    ValidationRules { create: ingress_class, update: ingress_class_update, update_status: no_rules };

const SPEC: At<'static> = At::new("spec");

/// Relaxations for an update: invalid values that the old ingress already has.
#[derive(Clone, Copy, Default)]
struct Ratcheting {
    secret_names: bool,
    wildcard_rules: bool,
}

fn ingress(ingress: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = ingress_rules(ingress, Ratcheting::default());
    let key = "kubernetes.io/ingress.class";
    let annotation = ingress.part("metadata").part("annotations").text_if_set(key);
    let class = ingress.part("spec").text_if_set("ingressClassName");
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(&At::new("annotations").field(key), annotation, detail);
    }
    errors
}

fn ingress_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let spec = old.part("spec");
    let secret_names = spec.items("tls").iter().any(|tls| !secret_name(tls.text("secretName")).is_empty());
    let wildcard_rules = spec.items("rules").iter().any(|rule| {
        let mut errors = FieldErrors::new();
        http_rule(rule, &At::ROOT, &mut errors);
        rule.text("host").contains('*') && !errors.is_empty()
    });
    let mut errors = meta::update(new, old);
    errors.extend(ingress_rules(new, Ratcheting { secret_names, wildcard_rules }));
    errors
}

fn ingress_status_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    load_balancer_status(new, old, false, &mut errors);
    errors
}

fn secret_name(name: &str) -> Vec<String> {
    if name.is_empty() { Vec::new() } else { names::is_dns1123_subdomain(name) }
}

fn host_name(host: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let wrong = if host.contains('*') {
        names::is_wildcard_dns1123_subdomain(host)
    } else {
        names::is_dns1123_subdomain(host)
    };
    errors.invalid_each(at, host, wrong);
}

fn ingress_rules(ingress: &Value, ratcheting: Ratcheting) -> FieldErrors {
    let mut errors = meta::create(ingress, true, names::name_is_dns_subdomain);
    let spec = ingress.part("spec");
    let rules = spec.items("rules");
    let backend = spec.part("defaultBackend");
    if rules.is_empty() && backend.is_none() {
        let shown = spec.part("rules").cloned().unwrap_or_default();
        errors.invalid(&SPEC, shown, "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_some() {
        backend_rules(backend, &SPEC.field("defaultBackend"), &mut errors);
    }
    let list = SPEC.field("rules");
    for (i, rule) in rules.iter().enumerate() {
        let at = list.index(i);
        let host = rule.text("host");
        if !host.is_empty() {
            if names::parse_ip_sloppy(host).is_some() {
                errors.invalid(&at.field("host"), host, "must be a DNS name, not an IP address");
            }
            host_name(host, &at.field("host"), &mut errors);
        }
        if !host.contains('*') || !ratcheting.wildcard_rules {
            http_rule(rule, &at, &mut errors);
        }
    }
    let list = SPEC.field("tls");
    for (i, tls) in spec.items("tls").iter().enumerate() {
        let at = list.index(i);
        let hosts = at.field("hosts");
        for (j, host) in tls.texts("hosts").enumerate() {
            host_name(host, &hosts.index(j), &mut errors);
        }
        if !ratcheting.secret_names {
            let name = tls.text("secretName");
            errors.invalid_each(&at.field("secretName"), name, secret_name(name));
        }
    }
    if let Some(class) = spec.text_if_set("ingressClassName") {
        errors.invalid_each(&SPEC.field("ingressClassName"), class, names::is_dns1123_subdomain(class));
    }
    errors
}

fn http_rule(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(http) = rule.part("http") else { return };
    let at = at.field("http");
    let list = at.field("paths");
    if http.items("paths").is_empty() {
        errors.required(&list, "");
    }
    for (i, path) in http.items("paths").iter().enumerate() {
        path_rules(path, &list.index(i), errors);
    }
}

fn path_rules(path: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const FORBIDDEN: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
    const ENDINGS: [&str; 2] = ["/..", "/."];
    let Some(kind) = path.text_if_set("pathType") else {
        errors.required(&at.field("pathType"), "pathType must be specified");
        return;
    };
    let text = path.text("path");
    let path_at = at.field("path");
    let mut absolute = || {
        if !text.starts_with('/') {
            errors.invalid(&path_at, text, "must be an absolute path");
        }
    };
    match kind {
        "Exact" | "Prefix" => {
            absolute();
            for sequence in FORBIDDEN.iter().filter(|sequence| text.contains(**sequence)) {
                errors.invalid(&path_at, text, format!("must not contain '{sequence}'"));
            }
            for ending in ENDINGS.iter().filter(|ending| text.ends_with(**ending)) {
                errors.invalid(&path_at, text, format!("cannot end with '{ending}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() {
                absolute();
            }
        }
        other => {
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&at.field("pathType"), other, &kinds);
        }
    }
    backend_rules(path.part("backend"), &at.field("backend"), errors);
}

fn backend_rules(backend: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match (backend.part("resource"), backend.part("service")) {
        (Some(_), Some(_)) => errors.invalid(at, "", "cannot set both resource and service backends"),
        (Some(resource), None) => {
            let at = at.field("resource");
            object_reference(resource, &at, errors);
        }
        (None, Some(service)) => {
            let name = service.text("name");
            if name.is_empty() {
                errors.required(&at.field("service.name"), "");
            } else {
                errors.invalid_each(&at.field("service.name"), name, names::is_dns1123_label(name));
            }
            let (port_name, number) =
                (service.part("port").text("name"), service.part("port").number("number"));
            match (port_name.is_empty(), number) {
                (false, 0) => {
                    let at = at.field("service.port.name");
                    errors.invalid_each(&at, port_name, names::is_valid_port_name(port_name));
                }
                (false, _) => errors.invalid(at, "", "cannot set both port name & port number"),
                (true, 0) => errors.required(at, "port name or number is required"),
                (true, number) => port_number(number, &at.field("service.port.number"), errors),
            }
        }
        (None, None) => errors.invalid(at, "", "resource or service backend is required"),
    }
}

/// Validates a reference whose kind and name are required and must be valid path segments.
fn object_reference(reference: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(group) = reference.text_if_set("apiGroup") {
        errors.invalid_each(&at.field("apiGroup"), group, names::is_dns1123_subdomain(group));
    }
    for field in ["kind", "name"] {
        required_name(reference, field, names::is_path_segment_name, at, errors);
    }
}

fn ingress_class(class: &Value, _: &ValidationContext) -> FieldErrors {
    supersede(ingress_class_rules(class), declared_parameters(class, None))
}

fn ingress_class_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (now, before) = (new.part("spec").text("controller"), old.part("spec").text("controller"));
    if now != before {
        errors.invalid(&SPEC.field("controller"), now, IMMUTABLE);
    }
    errors.extend(ingress_class_rules(new));
    supersede(errors, declared_parameters(new, Some(old)))
}

fn ingress_class_rules(class: &Value) -> FieldErrors {
    const MAX_CONTROLLER: usize = 250;
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    let spec = class.part("spec");
    let controller = spec.text("controller");
    if controller.len() > MAX_CONTROLLER {
        errors.too_long(&SPEC.field("controller"), MAX_CONTROLLER);
    }
    let path = value::Path::root().field("spec").field("controller");
    errors.extend(names::is_domain_prefixed_path(&path, controller));
    let Some(parameters) = spec.part("parameters") else { return errors };
    let at = SPEC.field("parameters");
    object_reference(parameters, &at, &mut errors);
    let namespace = parameters.text_if_set("namespace");
    match parameters.text_if_set("scope") {
        None => errors.required(&at.field("scope"), ""),
        Some("Namespace") => match namespace {
            None => errors.required(&at.field("namespace"), "`parameters.scope` is set to 'Namespace'"),
            Some(namespace) => {
                errors.invalid_each(&at.field("namespace"), namespace, names::is_dns1123_label(namespace));
            }
        },
        Some("Cluster") => {
            if namespace.is_some() {
                errors.forbidden(&at.field("namespace"), "`parameters.scope` is set to 'Cluster'");
            }
        }
        Some(other) => errors.not_supported(&at.field("scope"), other, &["Cluster", "Namespace"]),
    }
    errors
}

fn declared_parameters(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let parameters = new.part("spec").part("parameters");
    let former = old.map(|old| old.part("spec").part("parameters"));
    if parameters.is_some() && former.is_none_or(|former| !same(former, parameters)) {
        for field in ["kind", "name"] {
            let was_empty = former.is_some_and(|former| former.is_some() && former.text(field).is_empty());
            if parameters.text(field).is_empty() && !was_empty {
                declared.required(&SPEC.field("parameters").field(field), "");
            }
        }
    }
    declared
}
