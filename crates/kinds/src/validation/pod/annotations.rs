//! Validation of the well-known annotations of pods and templates: mirror pods, deletion cost, and the security annotations
//! that preceded fields of the security context.

use std::collections::HashSet;

use api::FieldErrors;
use api::labels::APP_ARMOR_PREFIX;
use api::meta::MIRROR_POD;
use api::validation::fields::{At, Read, Report};
use value::Value;

use super::options::PodValidationOptions;
use super::scheduling;
use super::volume_paths::descending_path;
use crate::pod_containers::{containers, visit_containers};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

pub(in crate::validation) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";

pub(in crate::validation) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Validates the well-known annotations of a pod or template. `at` is the path of the annotations.
pub(in crate::validation) fn annotations(
    metadata: Option<&Value>,
    spec: Option<&Value>,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let annotations = metadata.part("annotations");
    if let Some(mirror) = annotations.text_if_set(MIRROR_POD)
        && spec.text("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&at.key(MIRROR_POD), mirror, detail);
    }
    let tolerations = annotations.text(TOLERATIONS);
    if !tolerations.is_empty() {
        annotated_tolerations(tolerations, options, at, errors);
    }
    if !options.invalid_deletion_cost && !is_deletion_cost_valid(annotations) {
        let cost = annotations.text(DELETION_COST);
        errors.invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    if let Some(profile) = annotations.text_if_set(SECCOMP_POD) {
        seccomp_annotation(profile, &at.field(SECCOMP_POD), errors);
    }
    for (key, profile) in metadata.text_entries("annotations") {
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp_annotation(profile, &at.field(key), errors);
        }
    }
    let container_names: HashSet<&str> = containers(spec).map(|container| container.text("name")).collect();
    for (key, profile) in metadata.text_entries("annotations") {
        let Some(name) = key.strip_prefix(APP_ARMOR_PREFIX) else { continue };
        if !container_names.contains(name) {
            errors.invalid(&at.key(key), name, "container not found");
        }
        let is_profile = matches!(profile, "" | "runtime/default" | "unconfined");
        if !is_profile && !profile.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {}", api::field::quote(profile));
            errors.invalid(&at.key(key), profile, detail);
        }
    }
}

fn annotated_tolerations(text: &str, options: &PodValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    match value::json::parse(text.as_bytes()) {
        Ok(parsed) => {
            // kube-apiserver decodes its internal type here, whose field names match without regard to case.
            let list: Vec<Value> = parsed.as_list().map(<[Value]>::to_vec).unwrap_or_default();
            scheduling::toleration_list(&list, options, &at.field(TOLERATIONS), errors);
        }
        Err(error) => errors.invalid(at, TOLERATIONS, error.to_string()),
    }
}

/// Returns true if the pod deletion cost is absent or a 32-bit integer without a plus sign or leading zero.
pub(in crate::validation) fn is_deletion_cost_valid(annotations: Option<&Value>) -> bool {
    let Some(cost) = annotations.text_if_set(DELETION_COST) else { return true };
    let plain = cost.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']) || cost == "0";
    plain && cost.parse::<i32>().is_ok()
}

fn seccomp_annotation(profile: &str, at: &At<'_>, errors: &mut FieldErrors) {
    match profile.strip_prefix("localhost/") {
        _ if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        Some(file) => descending_path(file, at, errors),
        None => errors.invalid(at, profile, "must be a valid seccomp profile"),
    }
}

/// Checks that seccomp annotations and fields agree where both exist.
pub(in crate::validation) fn seccomp_annotations_match(
    metadata: Option<&Value>,
    spec: &Value,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let annotations = metadata.part("annotations");
    if let Some(annotation) = annotations.text_if_set(SECCOMP_POD)
        && let Some(profile) = spec.part("securityContext").part("seccompProfile")
    {
        let at = at.field("securityContext.seccompProfile");
        profile_matches("seccomp", annotation, profile, &at, errors);
    }
    visit_containers(spec, at, |container, at| {
        let Some(profile) = container.part("securityContext").part("seccompProfile") else { return };
        let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
        if let Some(annotation) = annotations.text_if_set(&key) {
            let at = at.field("securityContext.seccompProfile");
            profile_matches("seccomp", annotation, profile, &at, errors);
        }
    });
}

/// Checks that AppArmor annotations and fields agree where both exist.
pub(in crate::validation) fn app_armor_annotations_match(
    metadata: Option<&Value>,
    spec: &Value,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if spec.part("os").text("name") == "windows" {
        return;
    }
    let annotations = metadata.part("annotations");
    let context = spec.part("securityContext");
    let pod_profile = context.part("appArmorProfile");
    visit_containers(spec, at, |container, at| {
        let own = container.part("securityContext").and_then(|context| context.part("appArmorProfile"));
        let Some(profile) = own.or(pod_profile) else { return };
        let key = format!("{APP_ARMOR_PREFIX}{}", container.text("name"));
        if let Some(annotation) = annotations.text_if_set(&key) {
            let at = at.field("securityContext.appArmorProfile");
            profile_matches("apparmor", annotation, profile, &at, errors);
        }
    });
}

fn profile_matches(what: &str, annotation: &str, profile: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let same_type = match profile.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !same_type {
        errors.forbidden(&at.field("type"), format!("{what} type in annotation and field must match"));
    } else if profile.text("type") == "Localhost"
        && profile.text_if_set("localhostProfile") != annotation.strip_prefix("localhost/")
    {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(&at.field("localhostProfile"), detail);
    }
}

/// Rejects changes of immutable annotations of a pod.
pub(in crate::validation) fn annotation_changes(
    new: Option<&Value>,
    old: Option<&Value>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let (new_map, old_map) = (new.part("annotations"), old.part("annotations"));
    for (key, value) in old.text_entries("annotations") {
        if new_map.text_if_set(key) == Some(value) {
            continue;
        }
        if key.starts_with(APP_ARMOR_PREFIX) {
            errors.forbidden(&at.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR_POD {
            errors.forbidden(&at.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for (key, _) in new.text_entries("annotations") {
        if old_map.part(key).is_some() {
            continue;
        }
        if key.starts_with(APP_ARMOR_PREFIX) {
            errors.forbidden(&at.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR_POD {
            errors.forbidden(&at.key(key), "may not add mirror pod annotation");
        }
    }
}

/// Returns true for the mirror pod of a static pod.
pub(in crate::validation) fn is_mirror(pod: &Value) -> bool {
    pod.part("metadata").part("annotations").part(MIRROR_POD).is_some()
}
