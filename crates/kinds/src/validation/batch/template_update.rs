//! Validation of changes to a job's pod template.

use api::FieldErrors;
use api::validation::fields::{IMMUTABLE, Read, Report, same};
use value::{Map, Value};

use super::SPEC;
use crate::validation::{internal_json, job_status};

/// Allows template changes only while the job is suspended and has no active pods: scheduling fields and resources.
pub(super) fn template_update(spec: Option<&Value>, old_job: &Value, errors: &mut FieldErrors) {
    let (old_spec, old_status) = (old_job.part("spec"), old_job.part("status"));
    let suspended = old_spec.flag("suspend");
    let waits = suspended
        && (old_status.part("startTime").is_none() || job_status::is_true(old_status, "Suspended"))
        && old_status.number("active") == 0;
    let no_template = Value::Map(Map::new());
    let new = spec.part("template").unwrap_or(&no_template);
    let mut old = old_spec.part("template").cloned().unwrap_or_else(|| Map::new().into());
    if !waits {
        if !same(Some(new), Some(&old)) {
            let json = internal_json::compact("PodTemplateSpec", Some(new));
            errors.invalid_json(&SPEC.field("template"), &json, IMMUTABLE);
        }
        return;
    }
    take_scheduling(&mut old, new);
    take_resources(&mut old, new);
    if !same(new.part("spec"), old.part("spec")) {
        let json = internal_json::compact("PodSpec", new.part("spec"));
        errors.invalid_json(&SPEC.field("template.spec"), &json, IMMUTABLE);
    }
}

fn take_scheduling(old: &mut Value, new: &Value) {
    let new_spec = new.part("spec");
    let Some(pod) = old.get_mut("spec") else { return };
    match new_spec.part("affinity").cloned() {
        None => {
            pod.remove_at(&["affinity", "nodeAffinity"]);
            if pod.part("affinity").and_then(Value::as_map).is_some_and(Map::is_empty) {
                pod.remove_at(&["affinity"]);
            }
        }
        Some(affinity) => {
            if let Some(node) = affinity.part("nodeAffinity") {
                pod.set_at(&["affinity", "nodeAffinity"], node.clone());
            } else {
                if pod.part("affinity").is_none() {
                    pod.set_at(&["affinity"], Map::new());
                }
                pod.remove_at(&["affinity", "nodeAffinity"]);
            }
        }
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        match new_spec.part(field) {
            Some(value) => pod.set_at(&[field], value.clone()),
            None => {
                pod.remove_at(&[field]);
            }
        }
    }
}

fn take_resources(old: &mut Value, new: &Value) {
    let Some(pod) = old.get_mut("spec") else { return };
    for list in ["containers", "initContainers"] {
        let new = new.part("spec").items(list);
        let Some(old) = pod.get_mut(list).and_then(Value::as_list_mut) else { continue };
        if old.len() != new.len() {
            continue;
        }
        for (old, new) in old.iter_mut().zip(new) {
            if old.text("name") == new.text("name") {
                match new.part("resources") {
                    Some(resources) => old.set_at(&["resources"], resources.clone()),
                    None => {
                        old.remove_at(&["resources"]);
                    }
                }
            }
        }
    }
}
