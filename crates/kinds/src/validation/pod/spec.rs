//! Validation of the spec of a pod or template.

use std::collections::BTreeSet;

use api::features::Features;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::options::PodValidationOptions;
use super::{claims, containers, env, operating_system, resources, scheduling, security, volumes, windows};
use crate::pod_containers::visit_containers;
use crate::validation::declared::DeclaredContext;
use crate::validation::lifecycle::EVICTION_RESPONDERS;
use crate::validation::required_value;

const MAX_NAME_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;
const MAX_HOST_NAME: usize = 64;

/// Validates a pod spec. `metadata` is that of the pod; `None` for templates.
pub(in crate::validation) fn spec(
    spec: &Value,
    metadata: Option<&Value>,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if spec.part("terminationGracePeriodSeconds").is_none() {
        errors.required(&at.field("terminationGracePeriodSeconds"), "");
    }
    let volumes = volumes::volumes(spec, metadata.text("name"), at, options, errors);
    let claims: BTreeSet<&str> = spec
        .items("resourceClaims")
        .iter()
        .map(|claim| claim.text("name"))
        .filter(|name| !name.is_empty())
        .collect();
    claims::resource_claims(spec, metadata, at, errors);
    let pod = containers::Pod { spec, volumes: &volumes, claims: &claims, options };
    containers::containers(&pod, at, errors);
    containers::init_containers(&pod, at, errors);
    containers::ephemeral_containers(&pod, at, errors);
    resources::pod_requirements(spec, at, options, errors);
    host_network_ports(spec, options, at, errors);
    required_value(spec, "restartPolicy", &["Always", "OnFailure", "Never"], at, errors);
    required_value(
        spec,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        at,
        errors,
    );
    meta::labels(Some(spec), "nodeSelector", at, errors);
    security::pod(spec, options, at, errors);
    if spec.flag("hostPID") && spec.flag("shareProcessNamespace") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.field("shareProcessNamespace"), true, detail);
    }
    scheduling::affinity(spec, options, at, errors);
    dns_config(spec, &at.field("dnsConfig"), errors);
    scheduling::gates(spec, at, errors);
    scheduling::topology_spread(spec, options, at, errors);
    windows::host_processes(spec, options, at, errors);
    host_users(spec, options, at, errors);
    host_name_override(spec, at, errors);
    names_and_numbers(spec, at, errors);
    scheduling::tolerations(spec, options, at, errors);
    host_aliases(spec, at, errors);
    let class = spec.text("priorityClassName");
    if !class.is_empty() {
        errors.invalid_each(
            &at.field("priorityClassName"),
            class,
            names::name_is_dns_subdomain(class, false),
        );
    }
    if let Some(class) = spec.text_if_set("runtimeClassName") {
        errors.invalid_each(&at.field("runtimeClassName"), class, names::name_is_dns_subdomain(class, false));
    }
    if spec.part("preemptionPolicy").is_some() {
        required_value(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], at, errors);
    }
    resources::overhead(spec, at, options, errors);
    operating_system::operating_system(spec, at, errors);
    scheduling_group(spec, at, errors);
    eviction_responders(spec, at, errors);
    env::file_key_volumes(spec, at, errors);
}

fn host_network_ports(spec: &Value, options: &PodValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    if !spec.flag("hostNetwork") {
        return;
    }
    let list = at.field("containers");
    for (i, container) in spec.items("containers").iter().enumerate() {
        let at = list.index(i);
        let ports = at.field("ports");
        for (i, port) in container.items("ports").iter().enumerate() {
            let host = port.number("hostPort");
            // A template may omit the port; the defaults of the pod fill it in.
            if (options.is_pod || host != 0) && host != port.number("containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&ports.index(i).field("hostPort"), host, detail);
            }
        }
    }
}

fn dns_config(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let config = spec.part("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if config.is_none() {
            errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.items("nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&at.field("nameservers"), detail);
            return;
        }
    }
    let Some(config) = config else { return };
    let list = at.field("nameservers");
    let servers = config.items("nameservers");
    if servers.len() > MAX_NAME_SERVERS {
        let detail = format!("must not have more than {MAX_NAME_SERVERS} nameservers");
        errors.invalid(&list, servers.to_vec(), detail);
    }
    for (i, server) in config.texts("nameservers").enumerate() {
        errors.invalid_each(&list.index(i), server, names::is_valid_ip_for_legacy_field(server, true));
    }
    let list = at.field("searches");
    let searches = config.items("searches");
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(&list, searches.to_vec(), detail);
    }
    let characters: usize = config.texts("searches").map(|search| search.len() + 1).sum();
    if characters.saturating_sub(1) > MAX_SEARCH_CHARACTERS {
        let detail = format!(
            "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        );
        errors.invalid(&list, searches.to_vec(), detail);
    }
    for (i, search) in config.texts("searches").enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let wrong = names::is_dns1123_subdomain_with_underscore(search);
        errors.invalid_each(&list.index(i), search, wrong);
    }
    let list = at.field("options");
    for (i, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&list.index(i), "must not be empty");
        }
    }
}

fn host_users(spec: &Value, options: &PodValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.flag_if_set("hostUsers") != Some(false) {
        return;
    }
    if spec.flag("hostNetwork") && !options.user_namespace_on_host_network {
        errors.forbidden(&at.field("hostNetwork"), DETAIL);
    }
    if spec.flag("hostPID") {
        errors.forbidden(&at.field("HostPID"), DETAIL);
    }
    if spec.flag("hostIPC") {
        errors.forbidden(&at.field("HostIPC"), DETAIL);
    }
    if !options.user_namespace_with_devices {
        visit_containers(spec, at, |container, at| {
            if !container.items("volumeDevices").is_empty() {
                errors.forbidden(&at.field("volumeDevices"), DETAIL);
            }
        });
    }
}

fn host_name_override(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(name) = spec.text_if_set("hostnameOverride") else { return };
    let at = at.field("hostnameOverride");
    if spec.flag("setHostnameAsFQDN") {
        errors.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") {
        errors.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if name.len() > MAX_HOST_NAME {
        errors.too_long(&at, MAX_HOST_NAME);
    }
    errors.invalid_each(&at, name, names::is_dns1123_subdomain(name));
}

fn names_and_numbers(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let account = spec.text("serviceAccountName");
    if !account.is_empty() {
        let at = at.field("serviceAccountName");
        errors.invalid_each(&at, account, names::name_is_dns_subdomain(account, false));
    }
    let alias = spec.text("serviceAccount");
    if alias != account {
        let detail = format!("must be the same as serviceAccountName: {}", api::field::quote(account));
        errors.invalid(&at.field("deprecatedServiceAccount"), alias, detail);
    }
    let node = spec.text("nodeName");
    if !node.is_empty() {
        errors.invalid_each(&at.field("nodeName"), node, names::name_is_dns_subdomain(node, false));
    }
    if let Some(seconds) = spec.number_if_set("activeDeadlineSeconds") {
        let max = i64::from(i32::MAX);
        if !(1..=max).contains(&seconds) {
            let at = at.field("activeDeadlineSeconds");
            errors.invalid(&at, seconds, names::inclusive_range_error(1, max));
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.invalid_each(&at.field(field), name, names::is_dns1123_label(name));
        }
    }
}

fn host_aliases(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("hostAliases");
    for (i, alias) in spec.items("hostAliases").iter().enumerate() {
        let at = list.index(i);
        let ip = alias.text("ip");
        errors.invalid_each(&at.field("ip"), ip, names::is_valid_ip_for_legacy_field(ip, true));
        let hosts = at.field("hostnames");
        for (i, host) in alias.texts("hostnames").enumerate() {
            errors.invalid_each(&hosts.index(i), host, names::is_dns1123_subdomain(host));
        }
    }
}

fn scheduling_group(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(group) = spec.part("schedulingGroup") else { return };
    let at = at.field("schedulingGroup.podGroupName");
    match group.text_if_set("podGroupName") {
        None => errors.invalid(&at, Value::Null, "must specify one of: `podGroupName`"),
        Some(name) => errors.invalid_each(&at, name, names::name_is_dns_subdomain(name, false)),
    }
}

/// Responders that are asked before the pod is evicted. Only pods outside of groups have them.
fn eviction_responders(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if spec.items("evictionResponders").is_empty() {
        return;
    }
    if spec.part("schedulingGroup").is_some() {
        errors.forbidden(&at.field("schedulingGroup"), "may not be set when evictionResponders is set");
    }
    // The responders of a pod are fixed, so that there is nothing to compare with.
    let context = DeclaredContext { is_update: false, features: Features::default() };
    context.check(&EVICTION_RESPONDERS, Some(spec), None, at, errors);
}
