//! Computes the quota usage of an object, by kind.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use api::quantity::{Quantity, QuantityFormat};
use api::{GroupResource, meta};
use value::{Str, Value, format_smolstr};

use super::claims::{self, OldestClaims};
use crate::ClusterView;
use api::pod_resources::{self, Amounts, add, amounts, is_extended, is_huge_page, is_native, raise};

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
pub(super) const PER_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
pub(super) const IMPLICIT_DEVICE_CLASS: &str = "requests.deviceclass.resource.kubernetes.io/";

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

    pub(crate) fn usage(&self, object: &Value, context: &UsageContext<'_>) -> Amounts {
        match self {
            QuotaEvaluator::Pods => pod(object, context.now),
            QuotaEvaluator::Services => service(object),
            QuotaEvaluator::VolumeClaims => volume_claim(object),
            QuotaEvaluator::ResourceClaims => claims::resource_claim(object, context),
            QuotaEvaluator::Count(resource) => {
                let mut used = Amounts::from([(count_name(resource), count_of_one())]);
                if resource.group.is_empty() && ALIASES.contains(&resource.resource.as_str()) {
                    used.insert(resource.resource.clone(), count_of_one());
                }
                used
            }
        }
    }
}

/// The state of the cluster that the usage of objects of one namespace depends on. It is read at most once for all of them.
pub(crate) struct UsageContext<'a> {
    pub(super) cluster: &'a dyn ClusterView,
    pub(super) namespace: &'a str,
    pub(super) now: i64,
    pub(super) oldest_claims: OnceCell<OldestClaims>,
}

impl<'a> UsageContext<'a> {
    pub(crate) fn new(cluster: &'a dyn ClusterView, namespace: &'a str, now: i64) -> Self {
        UsageContext { cluster, namespace, now, oldest_claims: OnceCell::new() }
    }
}

/// Decides which names in a quota's `hard` are used by the objects of one resource.
pub(crate) struct UsedNames<'a> {
    evaluator: &'a QuotaEvaluator,
    cluster: &'a dyn ClusterView,
    /// For [`QuotaEvaluator::Count`], the name of the count.
    count: Option<Str>,
    /// The extended resources of all device classes.
    extended: OnceCell<HashSet<Str>>,
}

impl<'a> UsedNames<'a> {
    pub(crate) fn of(evaluator: &'a QuotaEvaluator, cluster: &'a dyn ClusterView) -> Self {
        let count = match evaluator {
            QuotaEvaluator::Count(resource) => Some(count_name(resource)),
            _ => None,
        };
        UsedNames { evaluator, cluster, count, extended: OnceCell::new() }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        match self.evaluator {
            QuotaEvaluator::Pods => {
                matches!(name, "pods" | "count/pods")
                    || pod_resources::COMPUTE_RESOURCES.contains(&name)
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
                        .is_some_and(|class| claims::extended_resource(self.cluster, class).is_some())
                    || (is_extended_quota(name)
                        && name.strip_prefix("requests.").is_some_and(|name| self.is_extended(name)))
            }
            QuotaEvaluator::Count(resource) => {
                self.count.as_deref() == Some(name)
                    || (resource.group.is_empty() && ALIASES.contains(&name) && name == resource.resource)
            }
        }
    }

    /// The names of `hard` that [`UsedNames::contains`]. Counts are looked up, because each of thousands of resources has its own.
    pub(crate) fn among<'n>(&self, hard: &'n Amounts) -> Vec<&'n Str> {
        let QuotaEvaluator::Count(resource) = self.evaluator else {
            return hard.keys().filter(|name| self.contains(name)).collect();
        };
        let names = self.count.iter().chain(std::iter::once(&resource.resource));
        let found = names.filter(|name| self.contains(name)).filter_map(|name| hard.get_key_value(name));
        found.map(|(name, _)| name).collect()
    }

    /// Whether a device class has the name as its extended resource.
    fn is_extended(&self, resource: &str) -> bool {
        let extended = self.extended.get_or_init(|| {
            let classes = self.cluster.list("resource.k8s.io", "deviceclasses", "");
            let names = classes.iter().filter_map(|class| class.str_at(&["spec", "extendedResourceName"]));
            names.map(Str::from).collect()
        });
        extended.contains(resource)
    }
}

/// The name under which a quota counts objects: `count/RESOURCE.GROUP`, without `.GROUP` for the core group.
fn count_name(resource: &GroupResource) -> Str {
    let GroupResource { group, resource } = resource;
    if group.is_empty() {
        format_smolstr!("count/{resource}")
    } else {
        format_smolstr!("count/{resource}.{group}")
    }
}

pub(super) fn count_of_one() -> Quantity {
    number(1)
}

pub(super) fn number(count: i64) -> Quantity {
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

pub(super) fn pod(pod: &Value, now: i64) -> Amounts {
    let mut used = Amounts::from([(Str::new_static("count/pods"), count_of_one())]);
    if is_charged(pod, now) {
        let statuses = ContainerStatuses::of(pod);
        add(&mut used, &compute(&pod_requests(pod, &statuses), &pod_limits(pod, &statuses)));
    }
    used
}

/// The usage of requests and limits, and of one pod.
pub(crate) fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([(Str::new_static("pods"), count_of_one())]);
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

/// The statuses of a pod's containers and init containers by name. Of equal names the first one counts.
struct ContainerStatuses<'a>(HashMap<Option<&'a str>, &'a Value>);

impl<'a> ContainerStatuses<'a> {
    fn of(pod: &'a Value) -> Self {
        let mut by_name = HashMap::new();
        for field in ["containerStatuses", "initContainerStatuses"] {
            for status in pod.list_at(&["status", field]) {
                by_name.entry(status.str_at(&["name"])).or_insert(status);
            }
        }
        ContainerStatuses(by_name)
    }

    fn get(&self, container: &Value) -> Option<&'a Value> {
        self.0.get(&container.str_at(&["name"])).copied()
    }
}

/// For each resource the maximum of requested, allocated and actual amounts.
fn pod_requests(pod: &Value, statuses: &ContainerStatuses<'_>) -> Amounts {
    let infeasible = is_infeasible(pod);
    let spec = |container: &Value| amounts(container.at(&["resources", "requests"]));
    let fallback = |container: &Value| if infeasible { Amounts::new() } else { spec(container) };
    let allocated = pod_resources::over_containers(pod, |container| {
        match statuses.get(container).and_then(|status| status.get("allocatedResources")) {
            Some(allocated) => amounts(Some(allocated)),
            None => fallback(container),
        }
    });
    let actual = pod_resources::over_containers(pod, |container| {
        let status = statuses.get(container);
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

fn pod_limits(pod: &Value, statuses: &ContainerStatuses<'_>) -> Amounts {
    let infeasible = is_infeasible(pod);
    let spec = |container: &Value| amounts(container.at(&["resources", "limits"]));
    let mut total = pod_resources::over_containers(pod, |container| {
        match statuses.get(container).and_then(|status| status.at(&["resources", "limits"])) {
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
        (Str::new_static("count/services"), count_of_one()),
        (Str::new_static("services"), count_of_one()),
        (Str::new_static("services.loadbalancers"), number(i64::from(kind == "LoadBalancer"))),
        (Str::new_static("services.nodeports"), node_ports),
    ])
}

fn volume_claim(claim: &Value) -> Amounts {
    let mut used = Amounts::from([
        (Str::new_static("persistentvolumeclaims"), count_of_one()),
        (Str::new_static("count/persistentvolumeclaims"), count_of_one()),
    ]);
    let class = meta::storage_class(claim);
    if !class.is_empty() {
        used.insert(format_smolstr!("{class}{STORAGE_CLASS}persistentvolumeclaims"), count_of_one());
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
