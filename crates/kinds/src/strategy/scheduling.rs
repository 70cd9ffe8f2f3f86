//! Strategies of `scheduling.k8s.io`: fields of disabled features in pod groups and in the templates of workloads.

use std::collections::HashMap;

use api::features::{Feature, Features};
use api::validation::fields::{Read, is_absent};
use value::Value;

use super::gates::{FeatureFields, Gate};

const PREEMPTION_POLICY: &str = "preemptionPolicy";
const RESOURCE_CLAIMS: &str = "resourceClaims";
const CONSTRAINTS: &str = "schedulingConstraints";
const COMPOSITE_TEMPLATES: &str = "compositePodGroupTemplates";
const TEMPLATES: &str = "podGroupTemplates";

/// Features of pod groups that are off in 1.37: shared resource claims and preemption policies.
pub(super) const POD_GROUP_GATES: &[Gate] =
    &[&[&["spec", RESOURCE_CLAIMS], &["status", "resourceClaimStatuses"]], &[&["spec", PREEMPTION_POLICY]]];
pub(super) const POD_GROUP_FEATURES: &[FeatureFields] = &[
    FeatureFields { feature: Feature::TopologyAwareWorkloadScheduling, fields: &[&["spec", CONSTRAINTS]] },
    FeatureFields {
        feature: Feature::CompositePodGroup,
        fields: &[&["spec", "parentCompositePodGroupName"]],
    },
];
pub(super) const COMPOSITE_POD_GROUP_GATES: &[Gate] = &[&[&["spec", PREEMPTION_POLICY]]];

/// Drops the fields of disabled features from the templates of a workload, unless the stored templates use them.
pub(super) fn drop_disabled(workload: &mut Value, old: Option<&Value>, features: Features) {
    if let Some(spec) = workload.get_mut("spec") {
        drop_in_templates(spec, old.part("spec"), features);
    }
}

/// Drops disabled fields in the two lists of templates of a holder: the workload's spec or a composite template.
fn drop_in_templates(holder: &mut Value, old: Option<&Value>, features: Features) {
    if !features.has(Feature::CompositePodGroup) && old.items(COMPOSITE_TEMPLATES).is_empty() {
        holder.remove_at(&[COMPOSITE_TEMPLATES]);
    }
    // Kubernetes compares templates of pod groups with the stored ones by position, and composite ones by name.
    let templates = holder.get_mut(TEMPLATES).and_then(Value::as_list_mut);
    for (i, template) in templates.into_iter().flatten().enumerate() {
        let old = old.items(TEMPLATES).get(i);
        drop_unused(template, old, PREEMPTION_POLICY);
        drop_unused(template, old, RESOURCE_CLAIMS);
        if !features.has(Feature::TopologyAwareWorkloadScheduling) {
            drop_unused(template, old, CONSTRAINTS);
        }
    }
    let stored: HashMap<&str, &Value> =
        old.items(COMPOSITE_TEMPLATES).iter().map(|template| (template.text("name"), template)).collect();
    let templates = holder.get_mut(COMPOSITE_TEMPLATES).and_then(Value::as_list_mut);
    for template in templates.into_iter().flatten() {
        let old = stored.get(template.text("name")).copied();
        drop_unused(template, old, PREEMPTION_POLICY);
        drop_in_templates(template, old, features);
    }
}

/// Drops a field unless the old object has it.
fn drop_unused(object: &mut Value, old: Option<&Value>, field: &str) {
    if old.part(field).is_none_or(is_absent) {
        object.remove_at(&[field]);
    }
}

#[cfg(test)]
mod tests;
