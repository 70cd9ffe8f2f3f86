//! Defaults of the `batch` group.

use api::validation::fields::same;
use value::{Map, Value};

use super::{fields::Fill, pod::template};
use crate::validation::batch::{LEGACY_NAME_LABEL, LEGACY_UID_LABEL, NAME_LABEL, UID_LABEL};

const BACKOFF_LIMIT: i64 = 6;

pub fn job(object: &mut Value) {
    let labels = object.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_map).cloned();
    if let Some(labels) = labels.filter(|labels| !labels.is_empty())
        && object.at(&["metadata", "labels"]).and_then(Value::as_map).is_none_or(Map::is_empty)
    {
        object.set_at(&["metadata", "labels"], labels);
    }
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    let is_set = |field| spec.get(field).is_some_and(|value: &Value| !value.is_null());
    let (counts, limits_each, fails_by_policy) = (
        is_set("completions") || is_set("parallelism"),
        is_set("backoffLimitPerIndex"),
        is_set("podFailurePolicy"),
    );
    if !counts {
        spec.insert("completions", 1);
    }
    spec.fill("parallelism", 1);
    spec.fill("backoffLimit", if limits_each { i64::from(i32::MAX) } else { BACKOFF_LIMIT });
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    spec.fill("podReplacementPolicy", if fails_by_policy { "Failed" } else { "TerminatingOrFailed" });
    spec.fill("manualSelector", false);
    job_template_spec(spec);
}

/// Adds the labels and the selector that match exactly the pods of a new job, unless `manualSelector` is set. Existing
/// labels stay; validation rejects them if they differ.
pub fn prepare_job(job: &mut Value) {
    if job.bool_at(&["spec", "manualSelector"]).unwrap_or_default() {
        return;
    }
    let (name, uid) = (api::meta::name(job).to_owned(), api::meta::uid(job).to_owned());
    let template_labels = ["spec", "template", "metadata", "labels"];
    // A job whose labels were defaulted from its template gets the generated labels too.
    let shares_labels = same(job.at(&["metadata", "labels"]), job.at(&template_labels));
    let Some(map) = job.as_map_mut() else { return };
    let spec = map.child_or_insert("spec");
    let labels = spec.child_or_insert("template").child_or_insert("metadata").child_or_insert("labels");
    for (key, value) in
        [(LEGACY_NAME_LABEL, &name), (NAME_LABEL, &name), (LEGACY_UID_LABEL, &uid), (UID_LABEL, &uid)]
    {
        labels.fill(key, value.as_str());
    }
    spec.child_or_insert("selector").child_or_insert("matchLabels").fill(UID_LABEL, uid);
    if shares_labels && let Some(labels) = job.at(&template_labels).cloned() {
        job.set_at(&["metadata", "labels"], labels);
    }
}

pub fn cron_job(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    spec.fill_zero("concurrencyPolicy", "Allow");
    spec.fill("suspend", false);
    spec.fill("successfulJobsHistoryLimit", 3);
    spec.fill("failedJobsHistoryLimit", 1);
    job_template_spec(spec.child_or_insert("jobTemplate").child_or_insert("spec"));
}

/// Defaults shared by Job and CronJob's job template.
fn job_template_spec(spec: &mut Map) {
    if let Some(policy) = spec.child("podFailurePolicy") {
        for pattern in policy.children("rules").flat_map(|rule| rule.children("onPodConditions")) {
            pattern.fill_zero("status", "True");
        }
    }
    template(spec.child_or_insert("template"));
}
