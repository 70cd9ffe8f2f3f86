//! Total resource requests and limits of a pod, as Kubernetes aggregates them: containers, sidecars, the largest init
//! container, pod-level resources, overhead.

use std::collections::BTreeMap;

use crate::quantity::Quantity;
use value::{Str, Value};

/// Quantities by resource name (Kubernetes' `ResourceList`).
pub type Amounts = BTreeMap<Str, Quantity>;

/// Reads a resource list. Entries that are not quantities are left out; validation has rejected them.
pub fn amounts(list: Option<&Value>) -> Amounts {
    let Some(map) = list.and_then(Value::as_map) else { return Amounts::new() };
    map.iter()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
        .collect()
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
        if sum.get(name).is_none_or(|so_far| amount > so_far) {
            sum.insert(name.clone(), amount.clone());
        }
    }
}

/// True for a sidecar: an init container with `restartPolicy: Always`.
pub fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

/// Aggregates `of` over the containers and init containers of a pod.
pub fn over_containers(pod: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut total = Amounts::new();
    for container in pod.list_at(&["spec", "containers"]) {
        add(&mut total, &of(container));
    }
    let mut sidecars = Amounts::new();
    let mut largest = Amounts::new();
    for container in pod.list_at(&["spec", "initContainers"]) {
        let mut needs = of(container);
        if is_sidecar(container) {
            add(&mut total, &needs);
            add(&mut sidecars, &needs);
            raise(&mut largest, &sidecars);
        } else {
            add(&mut needs, &sidecars);
            raise(&mut largest, &needs);
        }
    }
    raise(&mut total, &largest);
    total
}

/// Aggregates one side (`requests` or `limits`) of the containers' resources.
pub fn of_containers(pod: &Value, side: &str) -> Amounts {
    over_containers(pod, |container| amounts(container.at(&["resources", side])))
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
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}
