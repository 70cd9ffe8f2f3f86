//! Matching objects with the scopes of a quota.

use value::Value;

use super::usage::QuotaEvaluator;
use api::pod_resources::amounts;

/// Whether an object is in all scopes of a quota. Only pods and volume claims can be in a scope.
pub(crate) fn all_match(quota: &Value, evaluator: &QuotaEvaluator, object: &Value) -> bool {
    let mut by_name = quota.list_at(&["spec", "scopes"]).iter().filter_map(Value::as_str);
    by_name.all(|scope| matches(evaluator, scope, "Exists", &[], object))
        && quota.list_at(&["spec", "scopeSelector", "matchExpressions"]).iter().all(|requirement| {
            let scope = requirement.str_at(&["scopeName"]).unwrap_or_default();
            let operator = requirement.str_at(&["operator"]).unwrap_or_default();
            matches(evaluator, scope, operator, requirement.list_at(&["values"]), object)
        })
}

/// Whether an object is in the scope of one requirement.
pub(crate) fn is_in(requirement: &Value, evaluator: &QuotaEvaluator, object: &Value) -> bool {
    let text = |field: &str| requirement.str_at(&[field]).unwrap_or_default();
    matches(evaluator, text("scopeName"), text("operator"), requirement.list_at(&["values"]), object)
}

/// The scopes of a quota as requirements.
pub(crate) fn of_quota(quota: &Value) -> Vec<Value> {
    let by_name = quota.list_at(&["spec", "scopes"]).iter().filter_map(Value::as_str);
    let by_name = by_name.map(|scope| Value::map([("scopeName", scope), ("operator", "Exists")]));
    by_name.chain(quota.list_at(&["spec", "scopeSelector", "matchExpressions"]).iter().cloned()).collect()
}

fn matches(
    evaluator: &QuotaEvaluator,
    scope: &str,
    operator: &str,
    values: &[Value],
    object: &Value,
) -> bool {
    match (evaluator, scope) {
        (QuotaEvaluator::Pods, "Terminating") => is_terminating(object),
        (QuotaEvaluator::Pods, "NotTerminating") => !is_terminating(object),
        (QuotaEvaluator::Pods, "BestEffort") => is_best_effort(object),
        (QuotaEvaluator::Pods, "NotBestEffort") => !is_best_effort(object),
        (QuotaEvaluator::Pods, "PriorityClass") => {
            let class = object.str_at(&["spec", "priorityClassName"]).filter(|class| !class.is_empty());
            selects(operator, values, class)
        }
        (QuotaEvaluator::Pods, "CrossNamespacePodAffinity") => crosses_namespaces(object),
        (QuotaEvaluator::VolumeClaims, "VolumeAttributesClass") => {
            let names = attributes_classes(object);
            if names.is_empty() {
                selects(operator, values, None)
            } else {
                names.into_iter().any(|name| selects(operator, values, Some(name)))
            }
        }
        _ => false,
    }
}

/// Applies a requirement's operator, as in a label selector.
fn selects(operator: &str, values: &[Value], value: Option<&str>) -> bool {
    let listed = || value.is_some_and(|value| values.iter().any(|one| one.as_str() == Some(value)));
    match operator {
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "In" => listed(),
        "NotIn" => !listed(),
        _ => false,
    }
}

/// The scope `Terminating`: the pod has an `activeDeadlineSeconds`.
pub(crate) fn is_terminating(pod: &Value) -> bool {
    pod.int_at(&["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod is of QoS class BestEffort.
pub(crate) fn is_best_effort(pod: &Value) -> bool {
    if let Some(class) = pod.str_at(&["status", "qosClass"]).filter(|class| !class.is_empty()) {
        return class == "BestEffort";
    }
    let asks = |holder: Option<&Value>| {
        ["requests", "limits"].iter().any(|side| {
            amounts(holder.and_then(|holder| holder.get(side)))
                .iter()
                .any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && !amount.is_zero())
        })
    };
    let containers = pod.list_at(&["spec", "containers"]).iter();
    let mut all = containers.chain(pod.list_at(&["spec", "initContainers"]));
    !asks(pod.at(&["spec", "resources"])) && !all.any(|container| asks(container.get("resources")))
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses =
        |term: &Value| !term.list_at(&["namespaces"]).is_empty() || term.get("namespaceSelector").is_some();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let path = |field| ["spec", "affinity", kind, field];
        let required = pod.list_at(&path("requiredDuringSchedulingIgnoredDuringExecution"));
        let preferred = pod.list_at(&path("preferredDuringSchedulingIgnoredDuringExecution"));
        required.iter().any(crosses)
            || preferred.iter().filter_map(|weighted| weighted.get("podAffinityTerm")).any(crosses)
    })
}

/// The volume attributes classes that a claim has, requests, or is being changed to.
pub(crate) fn attributes_classes(claim: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = [
        claim.str_at(&["spec", "volumeAttributesClassName"]),
        claim.str_at(&["status", "currentVolumeAttributesClassName"]),
        claim.str_at(&["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"]),
    ]
    .into_iter()
    .flatten()
    .filter(|name| !name.is_empty())
    .collect();
    names.sort_unstable();
    names.dedup();
    names
}
