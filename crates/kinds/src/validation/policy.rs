//! Validation of the `policy` group: PodDisruptionBudget, and Eviction, the request to evict a pod.

use api::FieldErrors;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use value::Value;

use super::apps::{at_most_all, positive_count};
use super::{ValidationContext, ValidationRules, internal_json, no_rules};

pub(crate) const POD_DISRUPTION_BUDGET: ValidationRules = ValidationRules {
    create: |object, _| budget(object, false),
    update: |new, old, _| budget(new, meta::has_invalid_label_value(old.part("spec").part("selector"))),
    update_status,
};
pub(crate) const EVICTION: ValidationRules =
    ValidationRules { create: eviction, update: no_rules, update_status: no_rules };

/// Validates the spec; generic object validation checks the metadata.
fn budget(object: &Value, lenient: bool) -> FieldErrors {
    const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];
    let mut errors = FieldErrors::new();
    let at = At::new("spec");
    let spec = object.part("spec");
    let counts = ["minAvailable", "maxUnavailable"];
    if counts.iter().all(|field| spec.part(field).is_some()) {
        let json = internal_json::compact("PodDisruptionBudgetSpec", spec);
        errors.invalid_json(&at, &json, "minAvailable and maxUnavailable cannot be both set");
    }
    for field in counts {
        if let Some(count) = spec.part(field) {
            positive_count(Some(count), &at.field(field), &mut errors);
            at_most_all(Some(count), &at.field(field), &mut errors);
        }
    }
    meta::label_selector(spec.part("selector"), lenient, &at.field("selector"), &mut errors);
    let policy = spec.text_if_set("unhealthyPodEvictionPolicy");
    if let Some(policy) = policy.filter(|policy| !POLICIES.contains(policy)) {
        errors.not_supported(&at.field("unhealthyPodEvictionPolicy"), policy, &POLICIES);
    }
    errors
}

fn update_status(new: &Value, _: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let at = At::new("status");
    let status = new.part("status");
    meta::conditions(status.items("conditions"), &at.field("conditions"), &mut errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.not_negative(&at.field(field), status.number(field));
    }
    errors
}

fn eviction(object: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let options = object.part("deleteOptions");
    if options.flag("ignoreStoreReadErrorWithClusterBreakingPotential") {
        let at = At::new("deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential");
        let detail = "can not be set for pod eviction, try after removing the option";
        errors.invalid(&at, true, detail);
    }
    errors
}
