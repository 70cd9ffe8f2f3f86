//! Validation of StatefulSet, including its volume claim templates.

use std::collections::HashSet;

use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use api::validation::repeated::Repeated;
use api::{FieldErrors, names};
use value::{Map, Value};

use super::apps::{
    TEMPLATE, always_restarted, at_most_all, at_most_replicas, available_at_most_ready, collisions_grow,
    count, not_negative, positive_count, required_selector, selector_stays, template_is_selected,
};
use super::pod::options::PodValidationOptions;
use super::pod::{annotations, claims};
use super::template::template;
use super::{ValidationContext, ValidationRules, internal_json};

pub(crate) const STATEFUL_SET: ValidationRules = ValidationRules {
    create: stateful_set_create,
    update: stateful_set_update,
    update_status: stateful_set_status,
};

const SPEC: At<'static> = At::new("spec");

/// Relaxations for an update: values that the stored StatefulSet may already have.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing the stored object may keep")]
#[derive(Clone, Copy, Default)]
struct Tolerated {
    service_name: bool,
    claim_templates: bool,
    template: bool,
    recreate: bool,
}

fn stateful_set_create(object: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_label);
    let options = PodValidationOptions::for_template(None, context);
    stateful_set_spec(object.part("spec"), &options, Tolerated::default(), &mut errors);
    errors
}

fn stateful_set_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (spec, old_spec) = (new.part("spec"), old.part("spec"));
    let options = PodValidationOptions::for_template(old_spec.part("template"), context);
    let mut tolerated = Tolerated {
        service_name: true,
        claim_templates: true,
        template: false,
        recreate: old_spec.part("updateStrategy").text("type") == "Recreate",
    };
    let mut old_errors = FieldErrors::new();
    stateful_set_spec(old_spec, &options, tolerated, &mut old_errors);
    tolerated.template = !old_errors.is_empty();
    stateful_set_spec(spec, &options, tolerated, &mut errors);
    selector_stays(spec, old_spec, &mut errors);
    if !same(spec.part("volumeClaimTemplates"), old_spec.part("volumeClaimTemplates")) {
        let json = internal_json::compact("[]PersistentVolumeClaim", spec.part("volumeClaimTemplates"));
        errors.invalid_json(&SPEC.field("volumeClaimTemplates"), &json, IMMUTABLE);
    }
    for field in ["serviceName", "podManagementPolicy"] {
        if spec.text(field) != old_spec.text(field) {
            errors.invalid(&SPEC.field(field), spec.text(field), IMMUTABLE);
        }
    }
    errors
}

fn stateful_set_spec(
    spec: Option<&Value>,
    options: &PodValidationOptions,
    tolerated: Tolerated,
    errors: &mut FieldErrors,
) {
    let at = SPEC.field("podManagementPolicy");
    match spec.text("podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => errors.required(&at, ""),
        other => errors.invalid(&at, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_set_strategy(spec.part("updateStrategy"), tolerated, &SPEC.field("updateStrategy"), errors);
    if let Some(policy) = spec.part("persistentVolumeClaimRetentionPolicy") {
        let at = SPEC.field("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let value = policy.text(field);
            if !matches!(value, "Retain" | "Delete") {
                errors.not_supported(&at.field(field), value, &["Retain", "Delete"]);
            }
        }
    }
    if !tolerated.claim_templates {
        let list = SPEC.field("volumeClaimTemplates");
        for (i, claim) in spec.items("volumeClaimTemplates").iter().enumerate() {
            let at = list.index(i);
            claims::claim_spec(claim.part("spec"), false, &at.field("spec"), errors);
        }
    }
    errors.not_negative(&SPEC.field("replicas"), spec.number("replicas"));
    errors.not_negative(&SPEC.field("minReadySeconds"), spec.number("minReadySeconds"));
    errors.not_negative(&SPEC.field("ordinals.start"), spec.part("ordinals").number("start"));
    let service = spec.text("serviceName");
    if !tolerated.service_name && !service.is_empty() {
        errors.invalid_each(&SPEC.field("serviceName"), service, names::is_dns1123_label(service));
    }
    required_selector(spec, "statefulset", errors);
    stateful_set_template(spec, options, tolerated, errors);
    always_restarted(spec, "StatefulSet", errors);
}

fn stateful_set_strategy(
    strategy: Option<&Value>,
    tolerated: Tolerated,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let rolling = strategy.part("rollingUpdate");
    let rolling_at = at.field("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(at, ""),
        "RollingUpdate" => {
            let Some(rolling) = rolling else { return };
            errors.not_negative(&rolling_at.field("partition"), rolling.number("partition"));
            if let Some(unavailable) = rolling.part("maxUnavailable") {
                let at = rolling_at.field("maxUnavailable");
                positive_count(Some(unavailable), &at, errors);
                if count(Some(unavailable)) == 0 {
                    errors.invalid(&at, unavailable.clone(), "cannot be 0");
                }
                at_most_all(Some(unavailable), &at, errors);
            }
        }
        kind if kind == "OnDelete" || (kind == "Recreate" && tolerated.recreate) => {
            if rolling.is_some() {
                let json = internal_json::compact("*RollingUpdateStatefulSetStrategy", rolling);
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                errors.invalid_json(&rolling_at, &json, detail);
            }
        }
        _ => {
            let json = internal_json::compact("StatefulSetUpdateStrategy", strategy);
            let detail = if tolerated.recreate {
                "must be 'RollingUpdate', 'OnDelete', or 'Recreate'"
            } else {
                "must be 'RollingUpdate' or 'OnDelete'"
            };
            errors.invalid_json(at, &json, detail);
        }
    }
}

fn stateful_set_template(
    spec: Option<&Value>,
    options: &PodValidationOptions,
    tolerated: Tolerated,
    errors: &mut FieldErrors,
) {
    if template_is_selected(spec, errors).is_err() {
        let json = meta::label_selector_json(spec.part("selector"));
        // kube-apiserver gives no reason here.
        errors.report(api::field::FieldErrorKind::Invalid, &SPEC.field("selector"), None, json);
        return;
    }
    let pod_template = template_of_pods(spec);
    if !tolerated.template {
        template(Some(&pod_template), options, &TEMPLATE, errors);
    }
    let metadata = pod_template.part("metadata");
    meta::labels(metadata, "labels", &TEMPLATE, errors);
    meta::annotations(metadata, &TEMPLATE, errors);
    let at = TEMPLATE.field("annotations");
    annotations::annotations(metadata, pod_template.part("spec"), options, &at, errors);
}

/// Returns the template as the controller will change it: without hostname and subdomain, and with a volume for every claim.
fn template_of_pods(spec: Option<&Value>) -> Value {
    let mut pod_template = spec.part("template").cloned().unwrap_or_else(|| Map::new().into());
    let claims = spec.items("volumeClaimTemplates");
    let Some(pod) = pod_template.get_mut("spec") else { return pod_template };
    pod.remove_at(&["subdomain"]);
    pod.remove_at(&["hostname"]);
    if !claims.is_empty() {
        let name_of = |claim: &Value| claim.part("metadata").text("name").to_owned();
        let mut volumes: Vec<Value> = Vec::new();
        let repeated = Repeated::later(claims.iter().map(name_of));
        let claimed: HashSet<String> = claims.iter().map(name_of).collect();
        for (i, claim) in claims.iter().enumerate() {
            let name = name_of(claim);
            if repeated.at(i) {
                continue;
            }
            let mut volume = Value::map([("name", name.as_str())]);
            volume.set_at(&["persistentVolumeClaim", "claimName"], name);
            volumes.push(volume);
        }
        for volume in pod.items("volumes") {
            if !claimed.contains(volume.text("name")) {
                volumes.push(volume.clone());
            }
        }
        pod.set_at(&["volumes"], volumes);
    }
    pod_template
}

fn stateful_set_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (status, old_status) = (new.part("status"), old.part("status"));
    let counts = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    not_negative(status, &counts, &mut errors);
    let bounded = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    at_most_replicas(status, &bounded, &mut errors);
    available_at_most_ready(status, "status.readyReplicas", &mut errors);
    errors.append(&mut meta::update(new, old));
    collisions_grow(status, old_status, &mut errors);
    errors
}
