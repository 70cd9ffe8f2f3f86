//! Warnings about objects with a pod template.

use api::validation::fields::{At, Read, same};
use value::Value;

use super::storage::claim_spec;
use super::{pod, recommend_label};

pub(crate) fn pod_template(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if generation_changed(new, old) {
        pod::template(&At::new("template"), new.part("template"), warnings);
    }
}

fn workload(new: &Value, old: Option<&Value>, checked: &Value, warnings: &mut Vec<String>) {
    workload_name(new, old, warnings);
    if generation_changed(new, old) {
        pod::template(&At::new("spec.template"), checked.at(&["spec", "template"]), warnings);
    }
}

pub(crate) fn replication_controller(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    // On an update kube-apiserver checks the old template of a replication controller.
    workload(new, old, old.unwrap_or(new), warnings);
}

pub(crate) fn deployment(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload(new, old, new, warnings);
}

pub(crate) fn replica_set(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload(new, old, new, warnings);
}

pub(crate) fn daemon_set(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let template = |set: &Value| set.at(&["spec", "template"]).cloned();
    if old.is_none_or(|old| !same(template(old).as_ref(), template(new).as_ref())) {
        pod::template(&At::new("spec.template"), new.at(&["spec", "template"]), warnings);
    }
}

pub(crate) fn job(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload_name(new, old, warnings);
    if generation_changed(new, old) {
        job_spec(&At::new("spec"), new.part("spec"), warnings);
    }
}

fn generation_changed(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| {
        old.at(&["metadata"]).number("generation") != new.at(&["metadata"]).number("generation")
    })
}

fn workload_name(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if old.is_none() {
        recommend_label(new, "Pod names and hostnames", warnings);
    }
}

pub(crate) fn stateful_set(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if generation_changed(new, old) {
        pod::template(&At::new("spec.template"), new.at(&["spec", "template"]), warnings);
    }
    let templates = At::new("spec.volumeClaimTemplates");
    for (i, claim) in new.list_at(&["spec", "volumeClaimTemplates"]).iter().enumerate() {
        let here = templates.index(i);
        // On an update kube-apiserver's path contains `Spec` with a capital S.
        let at = if old.is_some() { here.field("Spec") } else { here };
        claim_spec(&at, claim.part("spec"), warnings);
    }
    if new.at(&["spec"]).number("revisionHistoryLimit") < 0 {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
}

pub(crate) fn cron_job(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload_name(new, old, warnings);
    if generation_changed(new, old) {
        job_spec(&At::new("spec.jobTemplate.spec"), new.at(&["spec", "jobTemplate", "spec"]), warnings);
    }
    if old.is_some() && new.part("spec").text("schedule").contains("TZ") {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
}

fn job_spec(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    let many = spec.number("completions") > 100_000 && spec.number("parallelism") > 10_000;
    if spec.text("completionMode") == "Indexed" && many {
        warnings.push(format!(
            "{at}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pod::template(&at.field("template"), spec.part("template"), warnings);
}
