//! What a pod asks for in total, as Kubernetes adds it up: containers, sidecars, the largest init container, the pod's own
//! amounts, overhead.

use std::collections::BTreeMap;

use crate::quantity::Quantity;
use value::{Str, Value};

/// Amounts by resource.
pub type Amounts = BTreeMap<Str, Quantity>;

/// The amounts of a map of quantities. What cannot be read is left out; objects that came this far can be.
pub fn amounts(list: Option<&Value>) -> Amounts {
    let Some(map) = list.and_then(Value::as_map) else { return Amounts::new() };
    map.iter()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
        .collect()
}

/// Adds `more` to `sum`.
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

/// Raises `sum` to `other` wherever that is more.
pub fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if sum.get(name).is_none_or(|so_far| amount > so_far) {
            sum.insert(name.clone(), amount.clone());
        }
    }
}

/// Whether a container is a sidecar: an init container that stays.
pub fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

/// The sum over the containers of what `of` says of each.
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

/// The sum over the containers of one side (`requests` or `limits`) of their specification.
pub fn of_containers(pod: &Value, side: &str) -> Amounts {
    over_containers(pod, |container| amounts(container.at(&["resources", side])))
}

/// Replaces sums by what the pod itself says, for the resources that it may say.
pub fn of_pod_itself(pod: &Value, side: &str, total: &mut Amounts, may: impl Fn(&str) -> bool) {
    for (name, amount) in amounts(pod.at(&["spec", "resources", side])) {
        if may(&name) {
            total.insert(name, amount);
        }
    }
}

/// Whether a pod may set this resource for itself.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}
