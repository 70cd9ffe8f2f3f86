//! Validation of Ingress, IngressClass, IPAddress, NetworkPolicy and ServiceCIDR.

use std::collections::HashSet;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use value::Value;

use super::addresses::{legacy_cidr, load_balancer_status};
use super::ports::port_number;
use super::{ValidationContext, ValidationRules, internal_json, no_rules, required_name};

pub(crate) const INGRESS: ValidationRules =
    ValidationRules { create: ingress, update: ingress_update, update_status: ingress_status_update };
pub(crate) const INGRESS_CLASS: ValidationRules =
    ValidationRules { create: ingress_class, update: ingress_class_update, update_status: no_rules };
pub(crate) const IP_ADDRESS: ValidationRules =
    ValidationRules { create: ip_address, update: ip_address_update, update_status: no_rules };
pub(crate) const NETWORK_POLICY: ValidationRules =
    ValidationRules { create: network_policy, update: network_policy_update, update_status: no_rules };
pub(crate) const SERVICE_CIDR: ValidationRules = ValidationRules {
    create: service_cidr,
    update: service_cidr_update,
    update_status: |new, old, _| meta::update(new, old),
};

const SPEC: At<'static> = At::new("spec");
const CIDRS: At<'static> = At::new("spec.cidrs");

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

fn ingress_rules(ingress: &Value, was_empty: Ratcheting) -> FieldErrors {
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
        if !host.contains('*') || !was_empty.wildcard_rules {
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
        if !was_empty.secret_names {
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

/// The name of an IPAddress is the address.
fn ip_name(name: &str, _: bool) -> Vec<String> {
    names::is_valid_ip(name)
}

fn ip_address(address: &Value, _: &ValidationContext) -> FieldErrors {
    supersede(ip_address_rules(address), declared_parent(address, None))
}

fn ip_address_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = ip_address_rules(new);
    errors.extend(meta::update(new, old));
    supersede(errors, declared_parent(new, Some(old)))
}

fn ip_address_rules(address: &Value) -> FieldErrors {
    let mut errors = meta::create(address, false, ip_name);
    let at = SPEC.field("parentRef");
    let Some(parent) = address.part("spec").part("parentRef") else {
        errors.required(&at, "");
        return errors;
    };
    let group = parent.text("group");
    if !group.is_empty() {
        errors.invalid_each(&at.field("group"), group, names::is_dns1123_subdomain(group));
    }
    for field in ["resource", "name"] {
        required_name(parent, field, names::is_path_segment_name, &at, &mut errors);
    }
    let namespace = parent.text("namespace");
    if !namespace.is_empty() {
        errors.invalid_each(&at.field("namespace"), namespace, names::is_path_segment_name(namespace));
    }
    errors
}

fn declared_parent(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let at = SPEC.field("parentRef");
    let parent = new.part("spec").part("parentRef");
    if let Some(old) = old {
        if !same(parent, old.part("spec").part("parentRef")) {
            if parent.is_none() {
                declared.required(&at, "");
            }
            declared.invalid(&at, Value::Null, IMMUTABLE);
        }
        return declared;
    }
    if parent.is_none() {
        declared.required(&at, "");
        return declared;
    }
    for field in ["resource", "name"] {
        if parent.text(field).is_empty() {
            declared.required(&at.field(field), "");
        }
    }
    declared
}

fn network_policy(policy: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(policy, true, names::name_is_dns_subdomain);
    policy_spec(policy, false, &HashSet::new(), &mut errors);
    supersede(errors, declared_blocks(policy, None))
}

fn network_policy_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut wrong = FieldErrors::new();
    meta::label_selector(old.part("spec").part("podSelector"), false, &At::ROOT, &mut wrong);
    let mut cidrs: HashSet<&str> = HashSet::new();
    for (direction, peers) in DIRECTIONS {
        for rule in old.part("spec").items(direction) {
            for block in rule.items(peers).iter().filter_map(|peer| peer.part("ipBlock")) {
                cidrs.insert(block.text("cidr"));
                cidrs.extend(block.texts("except"));
            }
        }
    }
    let mut errors = meta::update(new, old);
    policy_spec(new, !wrong.is_empty(), &cidrs, &mut errors);
    supersede(errors, declared_blocks(new, Some(old)))
}

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn policy_spec(policy: &Value, lenient: bool, old_cidrs: &HashSet<&str>, errors: &mut FieldErrors) {
    let spec = policy.part("spec");
    meta::label_selector(spec.part("podSelector"), lenient, &SPEC.field("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        let list = SPEC.field(direction);
        for (i, rule) in spec.items(direction).iter().enumerate() {
            let at = list.index(i);
            let ports = at.field("ports");
            for (j, port) in rule.items("ports").iter().enumerate() {
                policy_port(port, &ports.index(j), errors);
            }
            let list = at.field(peers);
            for (j, peer) in rule.items(peers).iter().enumerate() {
                policy_peer(peer, lenient, old_cidrs, &list.index(j), errors);
            }
        }
    }
    let at = SPEC.field("policyTypes");
    let types = spec.items("policyTypes");
    if types.len() > 2 {
        errors.invalid(&at, Value::List(types.to_vec()), "may not specify more than two policyTypes");
        return;
    }
    for (i, kind) in spec.texts("policyTypes").enumerate() {
        if !matches!(kind, "Ingress" | "Egress") {
            errors.not_supported(&at.index(i), kind, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(port: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let protocols = ["TCP", "UDP", "SCTP"];
    if let Some(protocol) = port.text_if_set("protocol")
        && !protocols.contains(&protocol)
    {
        errors.not_supported(&at.field("protocol"), protocol, &protocols);
    }
    let (port_at, end_at) = (at.field("port"), at.field("endPort"));
    let end = port.number_if_set("endPort");
    match port.part("port") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(&end_at, end, "may not be specified when `port` is non-numeric");
            }
            errors.invalid_each(&port_at, name, names::is_valid_port_name(name));
        }
        Some(number) => {
            let number = number.as_int().unwrap_or_default();
            port_number(number, &port_at, errors);
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&end_at, end, "must be greater than or equal to `port`");
                }
                port_number(end, &end_at, errors);
            }
        }
        None => {
            if let Some(end) = end {
                errors.invalid(&end_at, end, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn policy_peer(
    peer: &Value,
    lenient: bool,
    old_cidrs: &HashSet<&str>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.part(field) {
            count += 1;
            meta::label_selector(Some(selector), lenient, &at.field(field), errors);
        }
    }
    let block = peer.part("ipBlock");
    if let Some(block) = block {
        count += 1;
        ip_block(block, old_cidrs, &at.field("ipBlock"), errors);
    }
    if count == 0 {
        errors.required(at, "must specify a peer");
    } else if count > 1 && block.is_some() {
        errors.forbidden(at, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Value, old_cidrs: &HashSet<&str>, at: &At<'_>, errors: &mut FieldErrors) {
    let cidr = block.text("cidr");
    if cidr.is_empty() {
        errors.required(&at.field("cidr"), "");
        return;
    }
    legacy_cidr(cidr, old_cidrs, &at.field("cidr"), errors);
    let Some(network) = network(cidr) else { return };
    let list = at.field("except");
    for (i, except) in block.texts("except").enumerate() {
        legacy_cidr(except, old_cidrs, &list.index(i), errors);
        let Some(inner) = self::network(except) else { continue };
        if !(network.contains(&inner.network()) && network.prefix_len() < inner.prefix_len()) {
            errors.invalid(&list.index(i), except, "must be a strict subset of `cidr`");
        }
    }
}

fn network(cidr: &str) -> Option<ipnet::IpNet> {
    let (ip, bits) = names::parse_cidr_sloppy(cidr)?;
    ipnet::IpNet::new(ip, bits).ok()
}

fn declared_blocks(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    if old.is_some_and(|old| same(old.part("spec"), new.part("spec"))) {
        return declared;
    }
    for (direction, peers) in DIRECTIONS {
        let list = SPEC.field(direction);
        for (i, rule) in new.part("spec").items(direction).iter().enumerate() {
            let at = list.index(i);
            let list = at.field(peers);
            for (j, peer) in rule.items(peers).iter().enumerate() {
                if peer.part("ipBlock").is_some_and(|block| block.text("cidr").is_empty()) {
                    declared.required(&list.index(j).field("ipBlock.cidr"), "");
                }
            }
        }
    }
    declared
}

fn service_cidr(cidr: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(cidr, false, names::name_is_dns_subdomain);
    cidr_list(cidr, &mut errors);
    errors
}

fn cidr_list(object: &Value, errors: &mut FieldErrors) {
    let spec = object.part("spec");
    let cidrs: Vec<&str> = spec.texts("cidrs").collect();
    if cidrs.is_empty() {
        errors.required(&CIDRS, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        let shown = internal_json::compact("ServiceCIDRSpec", spec);
        let detail = format!("{shown}: may only hold up to 2 values");
        errors.report(FieldErrorKind::Invalid, &CIDRS, None, detail);
        return;
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        errors.invalid_each(&CIDRS.index(i), cidr, names::is_valid_cidr(cidr));
    }
    if let [first, second] = cidrs.as_slice() {
        let family = |cidr: &str| network(cidr).map(|network| network.addr().is_ipv6());
        if family(first).is_some() && family(first) == family(second) {
            let detail =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            errors.invalid(&CIDRS, Value::list(cidrs.iter().copied()), detail);
        }
    }
}

fn service_cidr_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (now, before) = (new.list_at(&["spec", "cidrs"]), old.list_at(&["spec", "cidrs"]));
    if now.len() == before.len() {
        for (i, (now, before)) in now.iter().zip(before).enumerate() {
            if now != before {
                errors.invalid(&CIDRS.index(i), now.clone(), IMMUTABLE);
            }
        }
    } else if let ([was_empty], [first, _]) = (before, now) {
        if was_empty != first {
            errors.invalid(&CIDRS.index(0), first.clone(), IMMUTABLE);
        }
        cidr_list(new, &mut errors);
    } else {
        let shown = new.at(&["spec", "cidrs"]).cloned().unwrap_or_default();
        errors.invalid(&CIDRS, shown, IMMUTABLE);
    }
    errors
}
