//! Aggregated cluster roles: their rules are the union of the rules of all cluster roles that their selectors
//! match.

use std::collections::HashSet;

use api::meta;
use value::Value;

use crate::rbac::rule::PolicyRule;

/// The rules that an aggregated role should have; `None` if it does not aggregate or has them already.
/// `roles` are all cluster roles, sorted by name, which determines the order of the union within each
/// selector.
pub fn rules(role: &Value, roles: &[&Value]) -> Option<Vec<PolicyRule>> {
    let selectors = role.at(&["aggregationRule"])?.list_at(&["clusterRoleSelectors"]);
    let own = meta::name(role);
    let mut union: Vec<PolicyRule> = Vec::new();
    let mut seen: HashSet<PolicyRule> = HashSet::new();
    for selector in selectors {
        for other in roles {
            if meta::name(other) == own || !selects(selector, other) {
                continue;
            }
            for rule in PolicyRule::all_of(other) {
                if seen.insert(rule.clone()) {
                    union.push(rule);
                }
            }
        }
    }
    (union != PolicyRule::all_of(role)).then_some(union)
}

/// Whether a label selector matches an object. An invalid requirement matches nothing.
fn selects(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| object.str_at(&["metadata", "labels", key]);
    let pairs = selector.at(&["matchLabels"]).and_then(Value::as_map);
    let labels = pairs.is_none_or(|pairs| pairs.iter().all(|(k, v)| label(k) == v.as_str()));
    labels
        && selector.list_at(&["matchExpressions"]).iter().all(|requirement| {
            let value = label(requirement.str_at(&["key"]).unwrap_or_default());
            let listed = || {
                let values = requirement.list_at(&["values"]);
                value.is_some_and(|value| values.iter().any(|v| v.as_str() == Some(value)))
            };
            match requirement.str_at(&["operator"]).unwrap_or_default() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use value::{Value, steps};

    use super::selects;

    #[test]
    fn a_selector_takes_linear_steps_in_its_labels_and_those_of_the_object() {
        let steps_of = |count: usize| {
            let labels = Value::map((0..count).map(|i| (format!("k{i}"), "v")));
            let selector = Value::map([("matchLabels", labels.clone())]);
            let role = Value::map([("metadata", Value::map([("labels", labels)]))]);
            steps::of(|| assert!(selects(&selector, &role)))
        };
        let (short, long) = (steps_of(300), steps_of(3000));
        assert!(long <= 15 * short, "{short} steps, then {long}");
    }
}
