//! Validation of pod status updates by nodes and controllers.

use std::collections::{HashMap, HashSet};

use std::net::IpAddr;

use api::pod_resources;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::validation::repeated::first_by;
use api::{FieldErrors, names, quantity::Quantity};
use value::{Map, Value};

use super::options::PodValidationOptions;
use super::user_ids::user_or_group_id;
use crate::validation::{ValidationContext, internal_json, pod};

const STATUS: At<'static> = At::new("status");
const NOT_NEGATIVE: &str = "must be a non-negative integer";
const MAX_HEALTH_MESSAGE: usize = 1024;

/// Validates an update through the `status` subresource.
pub(in crate::validation) fn update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let options = PodValidationOptions::for_pod(Some(old), context);
    let mut errors = meta::update(new, old);
    pod::annotations_update(new, old, &options, &mut errors);
    let none = Value::Map(Map::new());
    let (status, old_status) = (new.part("status").unwrap_or(&none), old.part("status").unwrap_or(&none));
    let (spec, old_spec) = (new.part("spec").unwrap_or(&none), old.part("spec").unwrap_or(&none));
    conditions(status, &mut errors);
    if spec.text("nodeName") != old_spec.text("nodeName") {
        errors.forbidden(&STATUS.field("nodeName"), "may not be changed directly");
    }
    nominated_node(status, old_status, old_spec, &mut errors);
    let generation = status.number("observedGeneration");
    if generation < 0 {
        errors.invalid(&STATUS.field("observedGeneration"), generation, NOT_NEGATIVE);
    }
    if status.text("qosClass") != old_status.text("qosClass") {
        let at = STATUS.field("qosClass");
        errors.invalid(&at, status.text("qosClass"), api::validation::fields::IMMUTABLE);
    }
    let lists = [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ];
    for (list, containers) in lists {
        state_transitions(status, old_status, list, containers, old_spec, &mut errors);
    }
    claim_statuses(status, spec, &mut errors);
    extended_claim_status(status, spec, &mut errors);
    allocatable_claim_statuses(status, spec, &mut errors);
    addresses(status, old_status, "podIPs", &mut errors);
    pod_ip(status, &mut errors);
    host_ip(status, &mut errors);
    addresses(status, old_status, "hostIPs", &mut errors);
    for (list, _) in lists {
        users(status, list, spec, &mut errors);
    }
    for (list, containers) in lists {
        allocated_resources(status, list, containers, spec, &mut errors);
    }
    errors
}

fn conditions(status: &Value, errors: &mut FieldErrors) {
    let list = STATUS.field("conditions");
    for (i, condition) in status.items("conditions").iter().enumerate() {
        let at = list.index(i);
        let generation = condition.number("observedGeneration");
        if generation < 0 {
            errors.invalid(&at.field("observedGeneration"), generation, NOT_NEGATIVE);
        }
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.invalid_each(&at.field("Type"), kind, names::is_qualified_name(kind));
        }
    }
}

fn nominated_node(status: &Value, old: &Value, old_spec: &Value, errors: &mut FieldErrors) {
    let at = STATUS.field("nominatedNodeName");
    let node = status.text("nominatedNodeName");
    if node.is_empty() || node == old.text("nominatedNodeName") {
        return;
    }
    errors.invalid_each(&at, node, names::name_is_dns_subdomain(node, false));
    if !old_spec.text("nodeName").is_empty() {
        errors.forbidden(&at, "may not be set on pods that are already bound to a node");
    }
}

/// Rejects leaving the terminated state for containers that are not restarted.
fn state_transitions(
    status: &Value,
    old: &Value,
    list: &str,
    containers: Option<&str>,
    spec: &Value,
    errors: &mut FieldErrors,
) {
    let restarts_all = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| spec.items(list))
        .flat_map(|container| container.items("restartPolicyRules"))
        .any(|rule| rule.text("action") == "RestartAllContainers");
    if containers.is_some() && restarts_all {
        return;
    }
    let at = STATUS.field(list);
    let mut resumed: HashMap<&str, usize> = HashMap::new();
    for after in status.items(list).iter().filter(|after| after.part("state").part("terminated").is_none()) {
        *resumed.entry(after.text("name")).or_default() += 1;
    }
    let by_name = containers.map(|containers| first_by(spec.items(containers), "name")).unwrap_or_default();
    for (i, before) in old.items(list).iter().enumerate() {
        let Some(terminated) = before.part("state").part("terminated").map(|t| t.number("exitCode")) else {
            continue;
        };
        let name = before.text("name");
        let count = resumed.get(name).copied().unwrap_or(0);
        let may = by_name.get(name).is_some_and(|container| restarts(container, spec, terminated));
        // For ephemeral containers every such status is reported, for others only the first.
        let reported = if containers.is_some() { count.min(1) } else { count };
        if !may {
            for _ in 0..reported {
                // Statuses of equal names would otherwise take as many rounds as there are pairs of them.
                if errors.is_full() {
                    return;
                }
                let detail = "may not be transitioned to non-terminated state";
                errors.forbidden(&at.index(i).field("state"), detail);
            }
        }
    }
}

fn restarts(container: &Value, spec: &Value, exit_code: i64) -> bool {
    if let Some(policy) = container.text_if_set("restartPolicy") {
        let rule = container.items("restartPolicyRules").iter().find(|rule| {
            rule.part("exitCodes").is_some_and(|codes| {
                let listed = codes.items("values").iter().any(|code| code.as_int() == Some(exit_code));
                match codes.text("operator") {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
            })
        });
        if rule.is_some_and(|rule| matches!(rule.text("action"), "Restart" | "RestartAllContainers")) {
            return true;
        }
        match policy {
            "Always" => return true,
            "OnFailure" => return exit_code != 0,
            "Never" => return false,
            _ => {}
        }
    }
    match spec.text("restartPolicy") {
        "OnFailure" => exit_code != 0,
        "Never" => false,
        _ => true,
    }
}

fn claim_statuses(status: &Value, spec: &Value, errors: &mut FieldErrors) {
    let list = STATUS.field("resourceClaimStatuses");
    let known = first_by(spec.items("resourceClaims"), "name");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, claim) in status.items("resourceClaimStatuses").iter().enumerate() {
        let at = list.index(i);
        let name = claim.text("name");
        if !known.contains_key(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&at.field("name"), name, detail);
        }
        if !seen.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
        if let Some(claim) = claim.text_if_set("resourceClaimName") {
            let at = at.field("resourceClaimName");
            errors.invalid_each(&at, claim, names::name_is_dns_subdomain(claim, false));
        }
    }
}

fn extended_claim_status(status: &Value, spec: &Value, errors: &mut FieldErrors) {
    let Some(claim) = status.part("extendedResourceClaimStatus") else { return };
    let at = STATUS.field("extendedResourceClaimStatus");
    let list = at.field("requestMappings");
    let mappings = claim.items("requestMappings");
    if mappings.is_empty() {
        errors.required(&list, "at least one request mapping is required");
    }
    let mut seen: HashSet<[&str; 3]> = HashSet::new();
    let init_containers = first_by(spec.items("initContainers"), "name");
    let containers = first_by(spec.items("containers"), "name");
    for (i, mapping) in mappings.iter().enumerate() {
        let at_mapping = list.index(i);
        let key = ["containerName", "resourceName", "requestName"].map(|field| mapping.text(field));
        let [container, resource, request] = key;
        let found = containers.get(container).or_else(|| init_containers.get(container)).copied();
        if found.is_none() {
            let detail =
                "must match the name of an entry in spec.initContainers.name or spec.containers.name";
            errors.invalid(&at_mapping.field("containerName"), container, detail);
        } else if found.part("resources").part("requests").part(resource).is_none() {
            let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
            errors.invalid(&at_mapping.field("resourceName"), resource, detail);
        }
        errors.invalid_each(&at.field("requestName"), request, names::is_dns1123_label(request));
        if !seen.insert(key) {
            for (field, value) in ["containerName", "resourceName", "requestName"].iter().zip(key) {
                errors.duplicate(&at_mapping.field(field), value);
            }
        }
    }
    let name = claim.text("resourceClaimName");
    let at = at.field("resourceClaimName");
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_each(&at, name, names::name_is_dns_subdomain(name, false));
    }
}

fn allocatable_claim_statuses(status: &Value, spec: &Value, errors: &mut FieldErrors) {
    let list = STATUS.field("nodeAllocatableResourceClaimStatuses");
    let known: HashSet<&str> = spec
        .items("resourceClaims")
        .iter()
        .chain(status.items("resourceClaimStatuses"))
        .filter_map(|other| other.text_if_set("resourceClaimName"))
        .collect();
    for (i, claim) in status.items("nodeAllocatableResourceClaimStatuses").iter().enumerate() {
        let at = list.index(i);
        let name = claim.text("resourceClaimName");
        if name.is_empty() {
            continue;
        }
        if !known.contains(name) {
            errors.invalid(&at.field("resourceClaimName"), name, "no mapping found in pod reference");
        }
        for (list, amounts) in [("mapping", &["quantity"][..]), ("overhead", &["perPod", "perContainer"][..])]
        {
            let items = at.field(list);
            for (i, item) in claim.items(list).iter().enumerate() {
                let at = items.index(i);
                let resource = item.text("name");
                if !pod_resources::is_pod_level(resource) {
                    let detail = "must be a node allocatable resource name";
                    errors.invalid(&at.field("name"), resource, detail);
                }
                if list == "overhead" && amounts.iter().all(|amount| item.part(amount).is_none()) {
                    errors.invalid(&at, "", "at least one of perPod or perContainer must be set");
                }
                for field in amounts {
                    let amount = item.text_if_set(field).and_then(|text| Quantity::parse(text).ok());
                    if let Some(amount) = amount.filter(|amount| amount.sign() < 0) {
                        errors.invalid(&at.field(field), amount.canonical(), "must be non-negative");
                    }
                }
            }
        }
    }
}

/// Validates addresses except those that the old status contains.
fn addresses(status: &Value, old: &Value, list: &str, errors: &mut FieldErrors) {
    let at = STATUS.field(list);
    let addresses = status.items(list);
    let before = first_by(old.items(list), "ip");
    for (i, address) in addresses.iter().enumerate() {
        let ip = address.text("ip");
        if !before.contains_key(ip) {
            errors.invalid_each(&at.index(i), ip, names::is_valid_ip_for_legacy_field(ip, true));
        }
    }
    if addresses.len() < 2 {
        return;
    }
    let parsed: Vec<Option<IpAddr>> =
        addresses.iter().map(|address| names::parse_ip_sloppy(address.text("ip"))).collect();
    if let Some(i) = parsed.iter().position(Option::is_none) {
        let ip = addresses.get(i).map(|address| address.text("ip")).unwrap_or_default();
        let detail = format!(
            "failed to check for dual stack with error:invalid IP[{i}]: {}",
            api::field::quote(ip).trim_matches('"')
        );
        errors.internal(&at, detail);
    }
    let has = |v6: bool| parsed.iter().flatten().any(|ip| ip.to_canonical().is_ipv6() == v6);
    let dual = parsed.iter().all(Option::is_some) && has(true) && has(false);
    if !dual || addresses.len() > 2 {
        let kind = if list == "podIPs" { "[]PodIP" } else { "[]HostIP" };
        let json = internal_json::compact(kind, status.part(list));
        errors.invalid_json(&at, &json, "may specify no more than one IP for each IP family");
    }
}

fn pod_ip(status: &Value, errors: &mut FieldErrors) {
    let ip = status.text("podIP");
    let at = STATUS.field("podIPs");
    match status.items("podIPs").first() {
        None if ip.is_empty() => {}
        Some(first) if !ip.is_empty() => {
            if first.text("ip") != ip {
                errors.invalid(&at.index(0).field("ip"), first.text("ip"), "must be equal to `podIP`");
            }
        }
        _ => {
            let json = internal_json::compact("[]PodIP", status.part("podIPs"));
            errors.invalid_json(&at, &json, "podIP and podIPs must either both be set or both be unset");
        }
    }
}

fn host_ip(status: &Value, errors: &mut FieldErrors) {
    if let Some(first) = status.items("hostIPs").first()
        && first.text("ip") != status.text("hostIP")
    {
        let at = STATUS.field("hostIPs");
        errors.invalid(&at.index(0).field("ip"), first.text("ip"), "must be equal to `hostIP`");
    }
}

fn users(status: &Value, list: &str, spec: &Value, errors: &mut FieldErrors) {
    let list_at = STATUS.field(list);
    let os = spec.part("os").map_or("linux", |os| os.text("name"));
    for (i, container) in status.items(list).iter().enumerate() {
        let Some(user) = container.part("user").and_then(|user| user.part("linux")) else { continue };
        let at = list_at.index(i);
        let at = at.field("user.linux");
        match os {
            "windows" => errors.forbidden(&at, "cannot be set for a windows pod"),
            "linux" => {
                let uid = user.number("uid");
                let max = i64::from(u32::MAX);
                if !(0..=max).contains(&uid) {
                    errors.invalid(&at.field("uid"), uid, names::inclusive_range_error(0, max));
                }
                let gid = user.number("gid");
                user_or_group_id(gid, &at.field("gid"), errors);
                let groups = at.field("supplementalGroups");
                for (i, group) in user.items("supplementalGroups").iter().enumerate() {
                    user_or_group_id(group.as_int().unwrap_or_default(), &groups.index(i), errors);
                }
            }
            _ => {}
        }
    }
}

fn allocated_resources(
    status: &Value,
    list: &str,
    containers: Option<&str>,
    spec: &Value,
    errors: &mut FieldErrors,
) {
    let list_at = STATUS.field(list);
    let by_name = containers.map(|containers| first_by(spec.items(containers), "name")).unwrap_or_default();
    for (i, container_status) in status.items(list).iter().enumerate() {
        let at = list_at.index(i);
        let at = at.field("allocatedResourcesStatus");
        let resources = container_status.items("allocatedResourcesStatus");
        if containers.is_none() {
            if !resources.is_empty() {
                errors.forbidden(&at, "must not be specified in container status");
            }
            continue;
        }
        let reportable = by_name
            .get(container_status.text("name"))
            .map(|container| ReportableResources::of(container, status));
        for (j, resource) in resources.iter().enumerate() {
            let at = at.index(j);
            if let Some(reportable) = &reportable
                && let Some(detail) = reportable.refuses(resource.text("name"))
            {
                errors.invalid(&at.field("name"), resource.text("name"), detail);
            }
            resource_health(resource, &at.field("resources"), errors);
        }
    }
}

/// Resources whose health the status of a container may report.
struct ReportableResources<'a> {
    requests: Option<&'a Map>,
    /// Name and request of the container's claims; an empty request means the whole claim.
    claims: HashSet<(&'a str, &'a str)>,
    extended_claim: Option<&'a str>,
    /// Requests of the extended-resource claim that are mapped to this container.
    extended_requests: HashSet<&'a str>,
}

impl<'a> ReportableResources<'a> {
    fn of(container: &'a Value, status: &'a Value) -> Self {
        let resources = container.part("resources");
        let claims = resources.items("claims").iter().map(|own| (own.text("name"), own.text("request")));
        let extended = status.part("extendedResourceClaimStatus");
        let requests = pod_resources::amounts(resources.part("requests"));
        let mapped = extended.items("requestMappings").iter().filter(|mapping| {
            mapping.text("containerName") == container.text("name")
                && requests.get(mapping.text("resourceName")).is_some_and(|amount| !amount.is_zero())
        });
        ReportableResources {
            requests: resources.map_of("requests"),
            claims: claims.collect(),
            extended_claim: extended.map(|extended| extended.text("resourceClaimName")),
            extended_requests: mapped.map(|mapping| mapping.text("requestName")).collect(),
        }
    }

    /// Returns the error if the status may not report a resource of this name.
    fn refuses(&self, name: &str) -> Option<&'static str> {
        let Some(claim) = name.strip_prefix("claim:") else {
            let known = self.requests.is_some_and(|requests| requests.contains_key(name));
            return (!known).then_some("must match one of the container's resource requests");
        };
        let of_request = claim.split_once('/').filter(|(_, request)| !request.is_empty());
        let known = self.claims.contains(&(claim, ""))
            || of_request.is_some_and(|(name, request)| {
                self.claims.contains(&(name, request))
                    || (self.extended_claim == Some(name) && self.extended_requests.contains(request))
            });
        (!known).then_some(
            "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty",
        )
    }
}

fn resource_health(resource: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, device) in resource.items("resources").iter().enumerate() {
        let at = at.index(i);
        let health = device.text("health");
        if !HEALTH.contains(&health) {
            errors.not_supported(&at.field("health"), health, &HEALTH);
        }
        if let Some(message) = device.text_if_set("message") {
            if message.is_empty() {
                errors.required(&at.field("message"), "must be non-empty if specified");
            } else if message.len() > MAX_HEALTH_MESSAGE {
                errors.too_long(&at.field("message"), MAX_HEALTH_MESSAGE);
            }
        }
        let id = device.text("resourceID");
        if !seen.insert(id) {
            errors.duplicate(&at.field("resourceID"), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use value::steps;

    use super::*;

    #[test]
    fn statuses_of_equal_names_take_no_round_for_each_pair_of_them() {
        let steps_of = |count: usize| {
            let pod = |state: &str| {
                let state = Value::map([(state, Value::map([("exitCode", 1)]))]);
                let status = Value::map([("name", Value::from("c")), ("state", state)]);
                Value::map([("ephemeralContainerStatuses", Value::list(vec![status; count]))])
            };
            let (old, new) = (pod("terminated"), pod("running"));
            let mut errors = FieldErrors::new();
            let steps = steps::of(|| {
                state_transitions(&new, &old, "ephemeralContainerStatuses", None, &Value::Null, &mut errors);
            });
            assert!(errors.is_full());
            steps
        };
        let (short, long) = (steps_of(300), steps_of(3000));
        assert!(long <= 15 * short, "{short} steps, then {long}");
    }
}
