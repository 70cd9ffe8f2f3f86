//! Validation of Service, its addresses and ports.

mod cluster_ips;

use std::collections::{BTreeSet, HashSet};

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report};
use api::validation::meta;
use value::Value;

pub(crate) use self::cluster_ips::cluster_ip_errors;
use self::cluster_ips::{CLUSTER_IPS, IP_FAMILIES, IP_FAMILY_POLICY, cluster_ips_stay, families_stay};
use super::addresses::{legacy_cidr, legacy_ip, load_balancer_status};
use super::core::endpoint_ip;
use super::ports::{app_protocol, port_name_or_number, port_number, protocol};
use super::{ValidationContext, ValidationRules, internal_json, optional_value};

pub(crate) const SERVICE: ValidationRules = ValidationRules { create, update, update_status };

const SPEC: At<'static> = At::new("spec");
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const MAX_AFFINITY_SECONDS: i64 = 86_400;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn create(service: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(service, true, names::name_is_dns_label);
    rules(service, None, &mut errors);
    errors
}

fn update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    cluster_ips_stay(new, old, &mut errors);
    families_stay(new, old, &mut errors);
    load_balancer_class(new, Some(old), &mut errors);
    let port = |service: &Value| service.part("spec").number("healthCheckNodePort");
    if needs_health_check(new) && needs_health_check(old) && port(new) != port(old) {
        errors.forbidden(&SPEC.field("healthCheckNodePort"), IMMUTABLE);
    }
    rules(new, Some(old), &mut errors);
    errors
}

fn update_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let at = At::new("status.loadBalancer.ingress");
    let ingress = new.list_at(&["status", "loadBalancer", "ingress"]);
    if kind_of(new) != "LoadBalancer" && !ingress.is_empty() {
        errors.forbidden(&at, "may only be used when `spec.type` is 'LoadBalancer'");
        return errors;
    }
    load_balancer_status(new, old, true, &mut errors);
    errors
}

fn kind_of(service: &Value) -> &str {
    service.str_at(&["spec", "type"]).unwrap_or_default()
}

fn is_headless(service: &Value) -> bool {
    matches!(service.list_at(&["spec", "clusterIPs"]), [only] if only.as_str() == Some("None"))
}

fn needs_health_check(service: &Value) -> bool {
    kind_of(service) == "LoadBalancer" && service.part("spec").text("externalTrafficPolicy") == "Local"
}

fn rules(service: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let spec = service.part("spec");
    let annotations = service.part("metadata").part("annotations");
    let (hints, mode) = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode");
    if let (Some(hint), Some(chosen)) = (annotations.text_if_set(hints), annotations.text_if_set(mode))
        && hint != chosen
    {
        let detail = format!("must match annotations[{hints}] when both are specified");
        errors.invalid(&At::new("metadata.annotations").key(mode), chosen, detail);
    }
    let kind = kind_of(service);
    let headless = is_headless(service);
    let ports = spec.items("ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required(&SPEC.field("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            errors.invalid(
                &CLUSTER_IPS.index(0),
                "None",
                format!("may not be set to 'None' for {kind} services"),
            );
        }
        "ExternalName" => external_name(service, errors),
        _ => {}
    }
    port_rules(ports, errors);
    meta::labels(spec, "selector", &SPEC, errors);
    session_affinity(spec, errors);
    errors.extend(cluster_ip_errors(service, old));
    let before: HashSet<&str> =
        old.map(|old| old.part("spec").texts("externalIPs").collect()).unwrap_or_default();
    let at = At::new("spec.externalIPs");
    for (i, ip) in spec.texts("externalIPs").enumerate() {
        let here = at.index(i);
        let count = errors.len();
        legacy_ip(ip, &before, &here, errors);
        if errors.len() == count {
            endpoint_ip(ip, &here, errors);
        }
    }
    if kind.is_empty() {
        errors.required(&SPEC.field("type"), "");
    } else if !TYPES.contains(&kind) {
        errors.not_supported(&SPEC.field("type"), kind, &TYPES);
    }
    node_port_rules(kind, ports, errors);
    source_ranges(service, old, errors);
    if spec.part("allocateLoadBalancerNodePorts").is_some() && kind != "LoadBalancer" {
        errors.forbidden(&SPEC.field("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER);
    }
    if kind == "LoadBalancer" && spec.part("allocateLoadBalancerNodePorts").is_none() {
        errors.required(&At::new("allocateLoadBalancerNodePorts"), "");
    }
    load_balancer_class(service, None, errors);
    traffic(service, errors);
}

fn external_name(service: &Value, errors: &mut FieldErrors) {
    let spec = service.part("spec");
    let words = "may not be set for ExternalName services";
    if !spec.items("clusterIPs").is_empty() {
        errors.forbidden(&CLUSTER_IPS, words);
    }
    if !spec.items("ipFamilies").is_empty() {
        errors.forbidden(&IP_FAMILIES, words);
    }
    if spec.part("ipFamilyPolicy").is_some() {
        errors.forbidden(&IP_FAMILY_POLICY, words);
    }
    let name = spec.text("externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    let at = SPEC.field("externalName");
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_each(&at, name, names::is_dns1123_subdomain(name));
    }
}

fn port_rules(ports: &[Value], errors: &mut FieldErrors) {
    let list = At::new("spec.ports");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let at = list.index(i);
        let name = port.text("name");
        if ports.len() > 1 && name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if !name.is_empty() {
            errors.invalid_each(&at.field("name"), name, names::is_dns1123_label(name));
            if !seen.insert(name) {
                errors.duplicate(&at.field("name"), name);
            }
        }
        port_number(port.number("port"), &at.field("port"), errors);
        protocol(port.text("protocol"), &at.field("protocol"), errors);
        port_name_or_number(port.part("targetPort"), &at.field("targetPort"), errors);
        app_protocol(port, &at, errors);
    }
}

fn session_affinity(spec: Option<&Value>, errors: &mut FieldErrors) {
    let at = SPEC.field("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "" => errors.required(&SPEC.field("sessionAffinity"), ""),
        "ClientIP" => {
            let config = spec.part("sessionAffinityConfig");
            let words = "when session affinity type is ClientIP";
            if config.is_none() {
                errors.required(&at, words);
            } else if config.part("clientIP").is_none() {
                errors.required(&at.field("clientIP"), words);
            } else {
                let at = at.field("clientIP.timeoutSeconds");
                match config.part("clientIP").number_if_set("timeoutSeconds") {
                    None => errors.required(&at, words),
                    Some(seconds) if !(1..=MAX_AFFINITY_SECONDS).contains(&seconds) => {
                        let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                        errors.invalid(&at, seconds, detail);
                    }
                    Some(_) => {}
                }
            }
        }
        "None" => {
            if spec.part("sessionAffinityConfig").is_some() {
                errors.forbidden(&at, "must not be set when session affinity is None");
            }
        }
        other => errors.not_supported(&SPEC.field("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

fn node_port_rules(kind: &str, ports: &[Value], errors: &mut FieldErrors) {
    let list = At::new("spec.ports");
    if kind == "ClusterIP" {
        for (i, port) in ports.iter().enumerate() {
            if port.number("nodePort") != 0 {
                let at = list.index(i);
                errors.forbidden(&at.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let node_port = port.number("nodePort");
        if node_port != 0 && !seen.insert((port.text("protocol"), node_port)) {
            let at = list.index(i);
            errors.duplicate(&at.field("nodePort"), node_port);
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        if !seen.insert((port.text("protocol"), port.number("port"))) {
            let key = Value::map([
                ("port", Value::Int(port.number("port"))),
                ("protocol", Value::from(port.text("protocol"))),
            ]);
            let shown = internal_json::compact("ServicePort", Some(&key));
            errors.report(api::field::FieldErrorKind::Duplicate, &list.index(i), None, shown);
        }
    }
}

fn source_ranges(service: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let spec = service.part("spec");
    let is_load_balancer = kind_of(service) == "LoadBalancer";
    if !spec.items("loadBalancerSourceRanges").is_empty() {
        let at = SPEC.field("LoadBalancerSourceRanges");
        if !is_load_balancer {
            errors.forbidden(&at, ONLY_LOAD_BALANCER);
        }
        let before: HashSet<&str> = old
            .map(|old| old.part("spec").texts("loadBalancerSourceRanges").map(str::trim).collect())
            .unwrap_or_default();
        for (i, range) in spec.texts("loadBalancerSourceRanges").enumerate() {
            legacy_cidr(range.trim(), &before, &at.index(i), errors);
        }
        return;
    }
    let annotation = |service: &Value| {
        service.part("metadata").part("annotations").text_if_set(SOURCE_RANGES).map(str::to_owned)
    };
    let Some(ranges) = annotation(service) else { return };
    let annotations = At::new("metadata.annotations");
    let at = annotations.key(SOURCE_RANGES);
    if !is_load_balancer {
        errors.forbidden(&at, ONLY_LOAD_BALANCER);
    }
    let unchanged = old.is_some_and(|old| annotation(old).unwrap_or_default() == ranges);
    if !unchanged && !ranges.trim().is_empty() {
        for range in ranges.trim().split(',') {
            legacy_cidr(range.trim(), &HashSet::new(), &at, errors);
        }
    }
}

fn load_balancer_class(service: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let at = SPEC.field("loadBalancerClass");
    let is_load_balancer = kind_of(service) == "LoadBalancer";
    let class = service.part("spec").text_if_set("loadBalancerClass");
    if let Some(old) = old
        && is_load_balancer
        && kind_of(old) == "LoadBalancer"
        && class != old.part("spec").text_if_set("loadBalancerClass")
    {
        let shown = class.map_or(Value::Null, Value::from);
        errors.invalid(&at, shown, "may not change once set");
    }
    match class {
        Some(class) if is_load_balancer => errors.invalid_each(&at, class, names::is_qualified_name(class)),
        Some(_) => errors.forbidden(&at, ONLY_LOAD_BALANCER),
        None => {}
    }
}

fn traffic(service: &Value, errors: &mut FieldErrors) {
    let spec = service.part("spec");
    let policy = spec.text("externalTrafficPolicy");
    let at = SPEC.field("externalTrafficPolicy");
    if !is_external(service) {
        if !policy.is_empty() {
            errors.invalid(&at, policy, "may only be set for externally-accessible services");
        }
    } else if policy.is_empty() {
        errors.required(&at, "");
    } else if !matches!(policy, "Cluster" | "Local") {
        errors.not_supported(&at, policy, &["Cluster", "Local"]);
    }
    let port = spec.number("healthCheckNodePort");
    let at = SPEC.field("healthCheckNodePort");
    if !needs_health_check(service) {
        if port != 0 {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at, port, detail);
        }
    } else if port == 0 {
        errors.required(&at, "");
    } else {
        port_number(port, &at, errors);
    }
    let at = SPEC.field("internalTrafficPolicy");
    match spec.text_if_set("internalTrafficPolicy") {
        None => {
            if matches!(kind_of(service), "NodePort" | "LoadBalancer" | "ClusterIP") {
                errors.required(&at, "");
            }
        }
        Some("Cluster" | "Local") => {}
        Some(other) => errors.not_supported(&at, other, &["Cluster", "Local"]),
    }
    optional_value(spec, "trafficDistribution", &DISTRIBUTIONS, &SPEC, errors);
}

/// Returns true if the service is reachable from outside the cluster.
pub(crate) fn is_external(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]).unwrap_or_default() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !service.part("spec").items("externalIPs").is_empty(),
        _ => false,
    }
}
