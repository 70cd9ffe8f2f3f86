//! Computes the quota usage of an object, by kind.

use api::quantity::{Quantity, QuantityFormat};
use api::{GroupResource, meta};
use value::{Str, Value, format_smolstr};

use crate::ClusterView;
use api::pod_resources::{self, Amounts, add, amounts, is_extended, is_huge_page, is_native, raise};

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const PER_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
const IMPLICIT_DEVICE_CLASS: &str = "requests.deviceclass.resource.kubernetes.io/";
const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
/// Devices counted for a claim for all devices.
const MAX_DEVICES: i64 = 32;

const POD_RESOURCES: &[&str] = &[
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
const SERVICE_RESOURCES: &[&str] =
    &["count/services", "services", "services.nodeports", "services.loadbalancers"];
const CLAIM_RESOURCES: &[&str] = &["persistentvolumeclaims", "requests.storage"];
/// Resources that can also be counted under their plain name.
const ALIASES: &[&str] = &["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

/// Computes the usage of the objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuotaEvaluator {
    Pods,
    Services,
    VolumeClaims,
    ResourceClaims,
    /// Counts each object as one.
    Count(GroupResource),
}

impl QuotaEvaluator {
    pub(crate) fn of(resource: &GroupResource) -> Self {
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods") => QuotaEvaluator::Pods,
            ("", "services") => QuotaEvaluator::Services,
            ("", "persistentvolumeclaims") => QuotaEvaluator::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => QuotaEvaluator::ResourceClaims,
            _ => QuotaEvaluator::Count(resource.clone()),
        }
    }

    /// Whether a name in a quota's `hard` is used by these objects.
    pub(crate) fn uses(&self, name: &str, cluster: &dyn ClusterView) -> bool {
        match self {
            QuotaEvaluator::Pods => {
                POD_RESOURCES.contains(&name)
                    || is_huge_page(name.strip_prefix("requests.").unwrap_or(name))
                    || is_extended_quota(name)
            }
            QuotaEvaluator::Services => SERVICE_RESOURCES.contains(&name),
            QuotaEvaluator::VolumeClaims => {
                name == "count/persistentvolumeclaims"
                    || CLAIM_RESOURCES.contains(&name)
                    || CLAIM_RESOURCES
                        .iter()
                        .any(|of| name.strip_suffix(of).is_some_and(|class| class.ends_with(STORAGE_CLASS)))
            }
            QuotaEvaluator::ResourceClaims => {
                name == "count/resourceclaims.resource.k8s.io"
                    || name.ends_with(PER_DEVICE_CLASS)
                    || name
                        .strip_prefix(IMPLICIT_DEVICE_CLASS)
                        .is_some_and(|class| extended_resource(cluster, class).is_some())
                    || (is_extended_quota(name)
                        && name.strip_prefix("requests.").is_some_and(|resource| {
                            cluster.list("resource.k8s.io", "deviceclasses", "").iter().any(|class| {
                                class.str_at(&["spec", "extendedResourceName"]) == Some(resource)
                            })
                        }))
            }
            QuotaEvaluator::Count(resource) => {
                name == count_name(resource)
                    || (resource.group.is_empty() && ALIASES.contains(&name) && name == resource.resource)
            }
        }
    }

    pub(crate) fn usage(&self, object: &Value, cluster: &dyn ClusterView, now: i64) -> Amounts {
        match self {
            QuotaEvaluator::Pods => pod(object, now),
            QuotaEvaluator::Services => service(object),
            QuotaEvaluator::VolumeClaims => volume_claim(object),
            QuotaEvaluator::ResourceClaims => resource_claim(object, cluster, now),
            QuotaEvaluator::Count(resource) => {
                let mut used = Amounts::from([(count_name(resource), one())]);
                if resource.group.is_empty() && ALIASES.contains(&resource.resource.as_str()) {
                    used.insert(resource.resource.clone(), one());
                }
                used
            }
        }
    }
}

/// The name under which a quota counts objects: `count/RESOURCE.GROUP`, without `.GROUP` for the core group.
pub(crate) fn count_name(resource: &GroupResource) -> Str {
    let GroupResource { group, resource } = resource;
    if group.is_empty() {
        format_smolstr!("count/{resource}")
    } else {
        format_smolstr!("count/{resource}.{group}")
    }
}

fn one() -> Quantity {
    number(1)
}

fn number(count: i64) -> Quantity {
    Quantity::new(count, QuantityFormat::DecimalSi)
}

fn is_extended_quota(name: &str) -> bool {
    name.starts_with("requests.") && (!is_native(name) || name.starts_with(IMPLICIT_DEVICE_CLASS))
}

/// Whether a pod's compute resources are charged. They are not if it has finished, or is past its deletion
/// grace period.
fn is_charged(pod: &Value, now: i64) -> bool {
    if matches!(pod.str_at(&["status", "phase"]), Some("Failed" | "Succeeded")) {
        return false;
    }
    let deleted = api::time::Timestamp::parse(meta::text(pod, "deletionTimestamp"));
    let grace = pod.int_at(&["metadata", "deletionGracePeriodSeconds"]);
    match (deleted, grace) {
        (Ok(deleted), Some(grace)) if meta::is_deleting(pod) => {
            now <= (deleted.micros() / 1_000_000).saturating_add(grace)
        }
        _ => true,
    }
}

fn pod(pod: &Value, now: i64) -> Amounts {
    let mut used = Amounts::from([(Str::new_static("count/pods"), one())]);
    if is_charged(pod, now) {
        add(&mut used, &compute(&pod_requests(pod), &pod_limits(pod)));
    }
    used
}

/// The usage of requests and limits, and of one pod.
pub(crate) fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([(Str::new_static("pods"), one())]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            used.insert(name.into(), request.clone());
            used.insert(format_smolstr!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            used.insert(format_smolstr!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in requests {
        if is_huge_page(name) {
            used.insert(name.clone(), request.clone());
            used.insert(format_smolstr!("requests.{name}"), request.clone());
        }
        if is_extended(name) || name.starts_with(DEVICE_CLASS_PREFIX) {
            used.insert(format_smolstr!("requests.{name}"), request.clone());
        }
    }
    used
}

/// Whether a resize is infeasible: then the allocated resources count, not the requested ones.
fn is_infeasible(pod: &Value) -> bool {
    pod.list_at(&["status", "conditions"])
        .iter()
        .find(|condition| condition.str_at(&["type"]) == Some("PodResizePending"))
        .is_some_and(|condition| condition.str_at(&["reason"]) == Some("Infeasible"))
}

fn container_status<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    ["containerStatuses", "initContainerStatuses"]
        .iter()
        .flat_map(|field| pod.list_at(&["status", field]))
        .find(|status| status.get("name") == container.get("name"))
}

/// For each resource the maximum of requested, allocated and actual amounts.
fn pod_requests(pod: &Value) -> Amounts {
    let infeasible = is_infeasible(pod);
    let spec = |container: &Value| amounts(container.at(&["resources", "requests"]));
    let fallback = |container: &Value| if infeasible { Amounts::new() } else { spec(container) };
    let allocated = pod_resources::over_containers(pod, |container| {
        match container_status(pod, container).and_then(|status| status.get("allocatedResources")) {
            Some(allocated) => amounts(Some(allocated)),
            None => fallback(container),
        }
    });
    let actual = pod_resources::over_containers(pod, |container| {
        let status = container_status(pod, container);
        let has =
            status.and_then(|s| s.at(&["resources", "requests"]).or_else(|| s.get("allocatedResources")));
        match has {
            Some(has) => amounts(Some(has)),
            None => fallback(container),
        }
    });
    let mut total = allocated;
    raise(&mut total, &actual);
    if !infeasible {
        raise(&mut total, &pod_resources::over_containers(pod, spec));
    }
    pod_resources::of_pod_itself(pod, "requests", &mut total, pod_resources::is_pod_level);
    add(&mut total, &amounts(pod.at(&["spec", "overhead"])));
    total
}

fn pod_limits(pod: &Value) -> Amounts {
    let infeasible = is_infeasible(pod);
    let spec = |container: &Value| amounts(container.at(&["resources", "limits"]));
    let mut total = pod_resources::over_containers(pod, |container| {
        let status = container_status(pod, container);
        match status.and_then(|status| status.at(&["resources", "limits"])) {
            Some(has) => amounts(Some(has)),
            None if infeasible => Amounts::new(),
            None => spec(container),
        }
    });
    if !infeasible {
        raise(&mut total, &pod_resources::over_containers(pod, spec));
    }
    pod_resources::of_pod_itself(pod, "limits", &mut total, pod_resources::is_pod_level);
    for (name, overhead) in amounts(pod.at(&["spec", "overhead"])) {
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = limit.add(&overhead);
        }
    }
    total
}

fn service(service: &Value) -> Amounts {
    let ports = service.list_at(&["spec", "ports"]);
    let count = |ports: usize| number(i64::try_from(ports).unwrap_or(i64::MAX));
    let kind = service.str_at(&["spec", "type"]).unwrap_or_default();
    let node_ports = match kind {
        // Node ports are not allocated yet: count the requested ones.
        "LoadBalancer" if service.bool_at(&["spec", "allocateLoadBalancerNodePorts"]) == Some(false) => {
            count(ports.iter().filter(|port| port.int_at(&["nodePort"]).unwrap_or(0) != 0).count())
        }
        "NodePort" | "LoadBalancer" => count(ports.len()),
        _ => number(0),
    };
    Amounts::from([
        (Str::new_static("count/services"), one()),
        (Str::new_static("services"), one()),
        (Str::new_static("services.loadbalancers"), number(i64::from(kind == "LoadBalancer"))),
        (Str::new_static("services.nodeports"), node_ports),
    ])
}

fn volume_claim(claim: &Value) -> Amounts {
    let mut used = Amounts::from([
        (Str::new_static("persistentvolumeclaims"), one()),
        (Str::new_static("count/persistentvolumeclaims"), one()),
    ]);
    let class = meta::storage_class(claim);
    if !class.is_empty() {
        used.insert(format_smolstr!("{class}{STORAGE_CLASS}persistentvolumeclaims"), one());
    }
    let size = |path: &[&str]| {
        let amount = claim.str_at(path).and_then(|text| Quantity::parse(text).ok())?;
        // Round up to whole bytes: a status with fractions would be invalid.
        Some(if amount.is_integer() { amount } else { Quantity::new(amount.value(), amount.format()) })
    };
    if let Some(mut storage) = size(&["spec", "resources", "requests", "storage"]) {
        if let Some(allocated) = size(&["status", "allocatedResources", "storage"])
            && allocated > storage
        {
            storage = allocated;
        }
        used.insert(Str::new_static("requests.storage"), storage.clone());
        if !class.is_empty() {
            used.insert(format_smolstr!("{class}{STORAGE_CLASS}requests.storage"), storage);
        }
    }
    used
}

fn resource_claim(claim: &Value, cluster: &dyn ClusterView, now: i64) -> Amounts {
    let mut used = Amounts::from([(Str::new_static("count/resourceclaims.resource.k8s.io"), one())]);
    let devices = |request: &Value| match request.str_at(&["allocationMode"]) {
        Some("All") => MAX_DEVICES,
        Some("ExactCount") => request.int_at(&["count"]).unwrap_or(0),
        _ => 0,
    };
    let class = |request: &Value| {
        format_smolstr!("{}{PER_DEVICE_CLASS}", request.str_at(&["deviceClassName"]).unwrap_or_default())
    };
    for request in claim.list_at(&["spec", "devices", "requests"]) {
        let alternatives = request.list_at(&["firstAvailable"]);
        let mut worst = Amounts::new();
        if !alternatives.is_empty() {
            for alternative in alternatives {
                let wanted = devices(alternative);
                if wanted > 0 {
                    raise(&mut worst, &Amounts::from([(class(alternative), number(wanted))]));
                }
            }
        } else if let Some(exactly) = request.get("exactly") {
            worst.insert(class(exactly), number(devices(exactly)));
        }
        add(&mut used, &worst);
    }
    add_extended(&mut used, claim, cluster, now);
    used
}

/// The extended resource name of a device class.
fn extended_resource(cluster: &dyn ClusterView, class: &str) -> Option<Str> {
    let class = cluster.object("resource.k8s.io", "deviceclasses", "", class)?;
    class.str_at(&["spec", "extendedResourceName"]).filter(|name| !name.is_empty()).map(Str::from)
}

/// Charges devices also as extended resources, except those that the claim's pod is already charged for.
fn add_extended(used: &mut Amounts, claim: &Value, cluster: &dyn ClusterView, now: i64) {
    let mut extended = Amounts::new();
    for (name, amount) in used.iter() {
        let Some(class) = name.strip_suffix(PER_DEVICE_CLASS).filter(|class| !class.is_empty()) else {
            continue;
        };
        extended.insert(format_smolstr!("{IMPLICIT_DEVICE_CLASS}{class}"), amount.clone());
        if let Some(resource) = extended_resource(cluster, class) {
            extended.insert(format_smolstr!("requests.{resource}"), amount.clone());
        }
    }
    if extended.is_empty() {
        return;
    }
    let charged = of_extended_pod(claim, cluster, now).unwrap_or_default();
    for (name, amount) in extended {
        let rest = match charged.get(&name) {
            Some(already) => amount.sub(already),
            None => amount,
        };
        if rest.sign() > 0 {
            used.insert(name, rest);
        }
    }
}

/// The usage of the pod for which an extended resource claim was created, if `claim` is such a claim.
fn of_extended_pod(claim: &Value, cluster: &dyn ClusterView, now: i64) -> Option<Amounts> {
    let is_extended =
        |claim: &Value| claim.str_at(&["metadata", "annotations", EXTENDED_CLAIM]) == Some("true");
    if !is_extended(claim) {
        return None;
    }
    let owner = meta::owner_references(claim).find(|owner| owner.controller)?;
    if owner.kind != "Pod" || owner.api_version != "v1" {
        return None;
    }
    let namespace = meta::namespace(claim);
    let pod_object = cluster.object("", "pods", namespace, &owner.name)?;
    if meta::uid(&pod_object) != owner.uid {
        return None;
    }
    match pod_object.at(&["status", "extendedResourceClaimStatus"]) {
        Some(status) if status.str_at(&["resourceClaimName"]) != Some(meta::name(claim)) => return None,
        Some(_) => {}
        // The pod does not name its claim yet: the oldest one counts.
        None => {
            let age = |claim: &Value| {
                (meta::text(claim, "creationTimestamp").to_owned(), meta::name(claim).to_owned())
            };
            let earlier = |other: &Value| {
                is_extended(other)
                    && meta::owner_references(other).any(|o| o.controller && o.uid == owner.uid)
                    && age(other) < age(claim)
            };
            let claims = cluster.list("resource.k8s.io", "resourceclaims", namespace);
            if claims.iter().any(|other| earlier(other)) {
                return None;
            }
        }
    }
    Some(pod(&pod_object, now))
}
