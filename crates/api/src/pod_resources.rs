//! Total resource requests and limits of a pod, as Kubernetes aggregates them: containers, sidecars, the largest init
//! container, pod-level resources, overhead.

use std::collections::BTreeMap;

use crate::quantity::Quantity;
use value::{Str, Value};

/// Prefix of the names of huge page resources; the size of the pages follows.
pub const HUGE_PAGES: &str = "hugepages-";

/// The resources that every container can request, and the names under which quotas limit requests and limits of them.
pub const COMPUTE_RESOURCES: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Quantities by resource name (Kubernetes' `ResourceList`).
pub type Amounts = BTreeMap<Str, Quantity>;

/// Reads a resource list. Entries that are not quantities are left out; validation has rejected them.
pub fn amounts(list: Option<&Value>) -> Amounts {
    let Some(map) = list.and_then(Value::as_map) else { return Amounts::new() };
    map.iter()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
        .collect()
}

/// True for resources of Kubernetes itself: names without a domain, or with `kubernetes.io`.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// True for extended resources with a name that quota can count.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && crate::names::is_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Adds `more` to `sum`, resource by resource.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(so_far) => *so_far = so_far.add(amount),
            None => {
                sum.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Raises each resource of `sum` to the value in `other`, if that is larger.
pub fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        raise_one(sum, name, Some(amount));
    }
}

fn raise_one(sum: &mut Amounts, name: &Str, amount: Option<&Quantity>) {
    if let Some(amount) = amount
        && sum.get(name).is_none_or(|so_far| amount > so_far)
    {
        sum.insert(name.clone(), amount.clone());
    }
}

/// True for a sidecar: an init container with `restartPolicy: Always`.
pub fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

/// Aggregates `of` over the containers and init containers of a pod: the highest sum at any time. That is either all containers with all
/// sidecars, or one init container with the sidecars before it.
pub fn over_containers(pod: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    pod.get("spec").map_or_else(Amounts::new, |spec| over_spec(spec, of))
}

fn over_spec(spec: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut total = Amounts::new();
    for container in spec.list_at(&["containers"]) {
        add(&mut total, &of(container));
    }
    let mut sidecars = Amounts::new();
    let mut largest = Amounts::new();
    // Only the resources of one container are compared at a time: the others were compared at the last sidecar that has them.
    for container in spec.list_at(&["initContainers"]) {
        let mut needs = of(container);
        if is_sidecar(container) {
            add(&mut total, &needs);
            add(&mut sidecars, &needs);
            for name in needs.keys() {
                raise_one(&mut largest, name, sidecars.get(name));
            }
        } else {
            for (name, amount) in &mut needs {
                if let Some(sidecars) = sidecars.get(name) {
                    *amount = amount.add(sidecars);
                }
            }
            raise(&mut largest, &needs);
        }
    }
    raise(&mut total, &largest);
    total
}

/// Aggregates one side (`requests` or `limits`) of the containers' resources.
pub fn of_containers(pod: &Value, side: &str) -> Amounts {
    pod.get("spec").map_or_else(Amounts::new, |spec| of_spec(spec, side))
}

/// Like [`of_containers`], for the spec of a pod or of a pod template.
pub fn of_spec(spec: &Value, side: &str) -> Amounts {
    over_spec(spec, |container| amounts(container.at(&["resources", side])))
}

/// Replaces totals by the pod-level resources, for the resource names that `may` allows.
pub fn of_pod_itself(pod: &Value, side: &str, total: &mut Amounts, may: impl Fn(&str) -> bool) {
    for (name, amount) in amounts(pod.at(&["spec", "resources", side])) {
        if may(&name) {
            total.insert(name, amount);
        }
    }
}

/// True if pod-level resources support this resource.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

pub fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}
