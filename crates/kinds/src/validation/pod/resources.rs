//! Validation of resource requests and limits, huge pages, extended resources and device claims of containers.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::pod_resources::{
    Amounts, COMPUTE_RESOURCES, HUGE_PAGES, amounts, is_extended, is_huge_page, is_native, is_pod_level,
    of_spec,
};
use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, field::FieldErrorKind, names, quantity::Quantity};
use value::{Map, Value};

use super::options::PodValidationOptions;

const QUOTA_REQUESTS: &str = "requests.";

/// Resources whose quantities must be integers because they are counted.
pub(crate) const COUNTED_RESOURCES: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Returns true if the request may be lower than the limit.
pub(crate) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Returns true if an amount of huge pages is a whole number of pages.
pub(crate) fn is_divisible(name: &str, quantity: &Quantity) -> bool {
    let Some(size) = name.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok()) else {
        return false;
    };
    size.sign() > 0
        && size.milli_value() % 1000 == 0
        && quantity.value().checked_rem(size.value()).is_some_and(|rest| rest == 0)
}

/// Validates the amount of a resource: not negative, and an integer if the resource is counted.
pub(crate) fn resource_quantity(name: &str, quantity: &Quantity, at: &At<'_>, errors: &mut FieldErrors) {
    if quantity.sign() < 0 {
        errors.invalid(at, quantity.canonical(), api::validation::fields::NOT_NEGATIVE);
    }
    let is_counted = COUNTED_RESOURCES.contains(&name) || is_extended(name);
    if is_counted && quantity.milli_value() % 1000 != 0 {
        errors.invalid(at, quantity.canonical(), "must be an integer");
    }
}

/// Validates a resource name, which must be standard or have a domain. Returns false if it is malformed.
pub(crate) fn resource_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) -> bool {
    let wrong = names::is_qualified_name(name);
    if !wrong.is_empty() {
        errors.invalid_each(at, name, wrong);
        return false;
    }
    let is_standard = COMPUTE_RESOURCES.contains(&name)
        || matches!(name, "storage" | "requests.storage")
        || COUNTED_RESOURCES.contains(&name)
        || is_huge_page(name)
        || name.strip_prefix(QUOTA_REQUESTS).is_some_and(is_huge_page);
    if !name.contains('/') && !is_standard {
        errors.invalid(at, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// Validates the name of a resource that a container may request.
pub(crate) fn container_resource_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    resource_name(name, at, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            errors.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if resource_name(name, at, errors) && !is_pod_level(name) {
        errors.not_supported(at, name, &["cpu", HUGE_PAGES, "memory"]);
    }
}

/// Validates `resources` of a container. `claims` are the names of the pod's device claims.
pub(in crate::validation) fn container_requirements(
    resources: Option<&Value>,
    claims: &BTreeSet<&str>,
    at: &At<'_>,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) {
    let limits = amounts(resources.part("limits"));
    let requests = amounts(resources.part("requests"));
    requirements(&limits, &requests, container_resource_name, at, options, errors);
    claim_names(resources, claims, &at.field("claims"), errors);
}

/// Validates `overhead` of a pod by the rules for container limits.
pub(in crate::validation) fn overhead(
    spec: &Value,
    at: &At<'_>,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) {
    let limits = amounts(spec.part("overhead"));
    let none = Amounts::new();
    requirements(&limits, &none, container_resource_name, &at.field("overhead"), options, errors);
}

fn requirements(
    limits: &Amounts,
    requests: &Amounts,
    name_rule: fn(&str, &At<'_>, &mut FieldErrors),
    at: &At<'_>,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) {
    let (limits_at, requests_at) = (at.field("limits"), at.field("requests"));
    let (mut any_huge, mut any_basic) = (false, false);
    let mut one = |name: &str, quantity: &Quantity, at: &At<'_>, errors: &mut FieldErrors| {
        any_huge |= is_huge_page(name);
        any_basic |= matches!(name, "cpu" | "memory");
        if is_huge_page(name) && !options.indivisible_huge_pages && !is_divisible(name, quantity) {
            let quantity = quantity.canonical();
            let detail = format!("{quantity} is not positive integer multiple of {name}");
            errors.invalid(at, quantity, detail);
        }
    };
    for (name, quantity) in limits {
        let at = limits_at.key(name);
        name_rule(name, &at, errors);
        resource_quantity(name, quantity, &at, errors);
        one(name, quantity, &at, errors);
    }
    for (name, quantity) in requests {
        let at = requests_at.key(name);
        name_rule(name, &at, errors);
        resource_quantity(name, quantity, &at, errors);
        match limits.get(name) {
            Some(limit) if quantity != limit && !may_overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {}", limit.canonical());
                errors.invalid(&requests_at, quantity.canonical(), detail);
            }
            Some(limit) if quantity > limit => {
                let detail = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                errors.invalid(&requests_at, quantity.canonical(), detail);
            }
            None if !may_overcommit(name) => {
                errors.required(&limits_at, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
        one(name, quantity, &at, errors);
    }
    if any_huge && !any_basic {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
}

/// Maximum number of unknown claims that are reported for one container.
const MAX_CLAIM_ERRORS: usize = 64;

/// Checks that a container's device claims exist in the pod and are listed once.
fn claim_names(
    resources: Option<&Value>,
    pod_claims: &BTreeSet<&str>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let mut seen: HashMap<&str, HashSet<&str>> = HashMap::new();
    // Each error lists all claim names, so an unlimited number would exhaust memory.
    let mut left = MAX_CLAIM_ERRORS;
    for (i, claim) in resources.items("claims").iter().enumerate() {
        let at = at.index(i);
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let requests = seen.entry(name).or_default();
        if requests.contains("") {
            errors.duplicate(&at, name);
        } else {
            if !request.is_empty() {
                errors.invalid_each(&at.field("request"), request, names::is_dns1123_label(request));
            }
            if requests.contains(request) {
                errors.duplicate(&at, format!("{name}/{request}"));
            } else if request.is_empty() {
                for _ in 0..requests.len() {
                    errors.duplicate(&at, name);
                }
            }
            requests.insert(request);
        }
        if !pod_claims.contains(name) && left > 0 {
            left -= 1;
            let known: Vec<&str> = pod_claims.iter().copied().collect();
            let listed = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{listed}");
            errors.report(FieldErrorKind::NotFound, &at, Some(name.into()), detail);
        }
    }
}

/// Validates the pod-level `resources`.
pub(in crate::validation) fn pod_requirements(
    spec: &Value,
    at: &At<'_>,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) {
    let Some(resources) = spec.part("resources") else { return };
    let at = at.field("resources");
    if spec.part("os").text("name") == "windows" {
        errors.forbidden(&at, "may not be set for a windows pod");
        return;
    }
    if resources.part("claims").is_some() {
        errors.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    let limits = amounts(resources.part("limits"));
    let requests = amounts(resources.part("requests"));
    requirements(&limits, &requests, pod_resource_name, &at, options, errors);
    let pod_claims: BTreeSet<&str> =
        spec.items("resourceClaims").iter().map(|claim| claim.text("name")).collect();
    claim_names(Some(resources), &pod_claims, &at.field("claims"), errors);
    for (side, of_pod) in [("requests", &requests), ("limits", &limits)] {
        let side_at = at.field(side);
        for (name, sum) in of_spec(spec, side) {
            // Containers may overcommit the limits of other resources.
            if let Some(own) = of_pod.get(&name)
                && (side == "requests" || is_huge_page(&name))
                && sum > *own
            {
                let sum = sum.canonical();
                let detail = format!("must be greater than or equal to aggregate container {side} of {sum}");
                errors.invalid(&side_at.key(&name), own.canonical(), detail);
            }
        }
    }
    let containers = at.field("containers");
    for (i, container) in spec.items("containers").iter().enumerate() {
        for (name, own) in amounts(container.part("resources").part("limits")) {
            if let Some(limit) = limits.get(&name)
                && own > *limit
            {
                let at = containers.index(i);
                let at = at.key(&name);
                let detail = format!("must be less than or equal to pod limits of {}", limit.canonical());
                errors.invalid(&at.field("limits"), own.canonical(), detail);
            }
        }
    }
}

/// Returns `BestEffort`, `Burstable` or `Guaranteed`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let spec = pod.part("spec");
    let pod_level = spec.part("resources");
    let sets_pod_level = ["requests", "limits"]
        .iter()
        .any(|field| pod_level.entries(field).any(|(name, _)| is_pod_level(name)));
    if sets_pod_level {
        return class_of(pod_level);
    }
    let mut class = "";
    for container in spec.items("initContainers").iter().chain(spec.items("containers")) {
        let own = class_of(container.part("resources"));
        if own == "Burstable" || (!class.is_empty() && class != own) {
            return "Burstable";
        }
        class = own;
    }
    if class.is_empty() { "BestEffort" } else { class }
}

fn class_of(resources: Option<&Value>) -> &'static str {
    let is_empty = |field: &str| resources.map_of(field).is_none_or(Map::is_empty);
    if is_empty("requests") && is_empty("limits") {
        return "BestEffort";
    }
    let of = |name: &str| {
        let amount = |field: &str| {
            let text = resources.part(field).text(name);
            Quantity::parse(text).unwrap_or(Quantity::ZERO)
        };
        let (request, limit) = (amount("requests"), amount("limits"));
        if request != limit {
            "Burstable"
        } else if request.is_zero() {
            "BestEffort"
        } else {
            "Guaranteed"
        }
    };
    let (cpu, memory) = (of("cpu"), of("memory"));
    if cpu == memory { cpu } else { "Burstable" }
}
