//! Matching objects with the scopes of a quota.

use std::collections::HashSet;

use value::Value;

use super::usage::QuotaEvaluator;
use api::pod_resources::amounts;

/// The distinct scopes of a quota. A quota can repeat a scope without limit, and some scopes take a look at a whole pod.
pub(crate) struct QuotaScopes<'a> {
    requirements: Vec<ScopeRequirement<'a>>,
}

struct ScopeRequirement<'a> {
    scope: &'a str,
    operator: &'a str,
    values: &'a [Value],
}

impl<'a> QuotaScopes<'a> {
    pub(crate) fn of(quota: &'a Value) -> Self {
        let by_name = quota.list_at(&["spec", "scopes"]).iter().filter_map(Value::as_str);
        let by_name = by_name.map(|scope| ScopeRequirement { scope, operator: "Exists", values: &[] });
        let expressions = quota.list_at(&["spec", "scopeSelector", "matchExpressions"]).iter();
        let mut known = HashSet::new();
        let requirements = by_name.chain(expressions.map(ScopeRequirement::read));
        QuotaScopes {
            requirements: requirements.filter(|one| one.has_values() || known.insert(one.scope)).collect(),
        }
    }

    /// Whether an object is in all scopes. Only pods and volume claims can be in a scope.
    pub(crate) fn all_match(&self, evaluator: &QuotaEvaluator, object: &Value) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(evaluator, object))
    }

    /// The names of the scopes that an object is in.
    pub(crate) fn matching(&self, evaluator: &QuotaEvaluator, object: &Value) -> HashSet<&'a str> {
        let matching = self.requirements.iter().filter(|one| one.matches(evaluator, object));
        matching.map(|one| one.scope).collect()
    }
}

impl<'a> ScopeRequirement<'a> {
    fn read(requirement: &'a Value) -> Self {
        let text = |field: &str| requirement.str_at(&[field]).unwrap_or_default();
        ScopeRequirement {
            scope: text("scopeName"),
            operator: text("operator"),
            values: requirement.list_at(&["values"]),
        }
    }

    /// Whether the result depends on more than the name of the scope.
    fn has_values(&self) -> bool {
        matches!(self.scope, "PriorityClass" | "VolumeAttributesClass")
    }

    fn matches(&self, evaluator: &QuotaEvaluator, object: &Value) -> bool {
        matches(evaluator, self.scope, self.operator, self.values, object)
    }
}

/// Whether an object is in the scope of one requirement.
pub(crate) fn is_in(requirement: &Value, evaluator: &QuotaEvaluator, object: &Value) -> bool {
    ScopeRequirement::read(requirement).matches(evaluator, object)
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
