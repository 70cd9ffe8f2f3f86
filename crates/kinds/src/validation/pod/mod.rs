//! Validation of Pod: create, update and the subresources.

pub(in crate::validation) mod annotations;
pub(in crate::validation) mod claims;
pub(in crate::validation) mod containers;
pub(in crate::validation) mod env;
pub(in crate::validation) mod mounts;
pub(in crate::validation) mod operating_system;
pub(in crate::validation) mod options;
pub(in crate::validation) mod probes;
pub(in crate::validation) mod projected;
pub(in crate::validation) mod resize;
pub(crate) mod resources;
pub(in crate::validation) mod scheduling;
pub(in crate::validation) mod security;
pub(in crate::validation) mod spec;
pub(in crate::validation) mod status;
pub(in crate::validation) mod sysctls;
mod user_ids;
pub(in crate::validation) mod volume_paths;
pub(in crate::validation) mod volume_sources;
pub(in crate::validation) mod volumes;
pub(in crate::validation) mod windows;

use std::collections::HashSet;

use api::validation::fields::{At, Read, Report, is_absent, same};
use api::validation::meta;
use api::validation::repeated::{Repeated, first_by, last_by};
use api::{FieldErrors, names};
use value::{Map, Value};

use self::containers::image_of_pod;
use self::options::PodValidationOptions;
use super::{ValidationContext, ValidationRules, internal_json, unified_diff};

pub(crate) const POD: ValidationRules = ValidationRules { create, update, update_status: status::update };

const SPEC: At<'static> = At::new("spec");
const ANNOTATIONS: At<'static> = At::new("metadata.annotations");

/// Mutable fields as listed in kube-apiserver's error.
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
     to 1 if it was previously negative)";

fn create(pod: &Value, context: &ValidationContext) -> FieldErrors {
    let options = PodValidationOptions::for_pod(None, context);
    let mut errors = metadata_and_spec(pod, &options);
    let Some(spec) = pod.part("spec") else { return errors };
    if !spec.items("ephemeralContainers").is_empty() {
        errors.forbidden(&SPEC.field("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.items("schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&SPEC.field("nodeName"), detail);
    }
    let metadata = pod.part("metadata");
    annotations::seccomp_annotations_match(metadata, spec, &SPEC, &mut errors);
    annotations::app_armor_annotations_match(metadata, spec, &SPEC, &mut errors);
    errors
}

/// Validates metadata and spec by rules common to all writes.
fn metadata_and_spec(pod: &Value, options: &PodValidationOptions) -> FieldErrors {
    let mut errors = meta::create(pod, true, names::name_is_dns_subdomain);
    let metadata = pod.part("metadata");
    let no_spec = Value::Map(Map::new());
    let spec = pod.part("spec").unwrap_or(&no_spec);
    annotations::annotations(metadata, Some(spec), options, &ANNOTATIONS, &mut errors);
    spec::spec(spec, metadata, options, &SPEC, &mut errors);
    if spec.text("serviceAccountName").is_empty() {
        no_tokens(spec, &mut errors);
    }
    if let Some(seconds) = spec.number_if_set("terminationGracePeriodSeconds") {
        errors.not_negative(&SPEC.field("terminationGracePeriodSeconds"), seconds);
    }
    for list in ["containers", "initContainers"] {
        let at = SPEC.field(list);
        for (i, container) in spec.items(list).iter().enumerate() {
            image_of_pod(container, &at.index(i), &mut errors);
        }
    }
    errors
}

/// Rejects projected tokens in pods without a service account.
fn no_tokens(spec: &Value, errors: &mut FieldErrors) {
    let list = SPEC.field("volumes");
    for (i, volume) in spec.items("volumes").iter().enumerate() {
        let at = list.index(i);
        let sources = at.field("projected.sources");
        let projected = volume.part("projected");
        for (i, source) in projected.items("sources").iter().enumerate() {
            if source.part("serviceAccountToken").is_some() {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&sources.index(i).field("serviceAccountToken"), detail);
            }
        }
    }
}

fn update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let options = PodValidationOptions::for_pod(Some(old), context);
    let mut errors = meta::update(new, old);
    errors.append(&mut metadata_and_spec(new, &options));
    annotations_update(new, old, &options, &mut errors);
    let (Some(new_spec), Some(old_spec)) = (new.part("spec"), old.part("spec")) else { return errors };
    for list in ["containers", "initContainers"] {
        let at = SPEC.field(list);
        let containers = new_spec.items(list);
        if containers.len() != old_spec.items(list).len() {
            errors.forbidden(&at, "pod updates may not add or remove containers");
            return errors;
        }
        for (i, container) in containers.iter().enumerate() {
            let at = at.index(i);
            if container.text("image").is_empty() {
                errors.required(&at.field("image"), "");
            }
            image_of_pod(container, &at, &mut errors);
        }
    }
    if !deadline_update(new_spec, old_spec, &mut errors) {
        return errors;
    }
    tolerations_update(new_spec, old_spec, &options, &mut errors);
    gates_update(new_spec, old_spec, &mut errors);
    if same(Some(new_spec), Some(old_spec)) {
        return errors;
    }
    let masked = masked(new_spec, old_spec, &mut errors);
    if !same(Some(&masked), Some(old_spec)) {
        let before = internal_json::indented("PodSpec", Some(old_spec));
        let after = internal_json::indented("PodSpec", Some(&masked));
        let diff = unified_diff::unified(&before, &after);
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{diff}");
        errors.forbidden(&SPEC, detail);
    }
    errors
}

/// Validates the annotations of an updated pod.
pub(super) fn annotations_update(
    new: &Value,
    old: &Value,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) {
    let metadata = new.part("metadata");
    annotations::annotation_changes(metadata, old.part("metadata"), &ANNOTATIONS, errors);
    annotations::annotations(metadata, new.part("spec"), options, &ANNOTATIONS, errors);
}

/// Allows the deadline to be added or lowered. Returns false if the remaining update checks must be skipped.
fn deadline_update(new: &Value, old: &Value, errors: &mut FieldErrors) -> bool {
    let at = SPEC.field("activeDeadlineSeconds");
    let (new, old) = (new.number_if_set("activeDeadlineSeconds"), old.number_if_set("activeDeadlineSeconds"));
    match (new, old) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(&at, seconds, names::inclusive_range_error(0, i64::from(i32::MAX)));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(&at, seconds, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&at, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations_update(new: &Value, old: &Value, options: &PodValidationOptions, errors: &mut FieldErrors) {
    // All fields of a toleration except its seconds; none of them is a list or a quantity.
    let identity = |toleration: &Value| {
        let fields = toleration.as_map().into_iter().flat_map(Map::iter);
        let fields = fields.filter(|(field, value)| *field != "tolerationSeconds" && !is_absent(value));
        value::write::to_string(&Value::map(fields.map(|(field, value)| (field.clone(), value.clone()))))
    };
    let now: HashSet<String> = new.items("tolerations").iter().map(identity).collect();
    if old.items("tolerations").iter().all(|before| now.contains(&identity(before))) {
        scheduling::tolerations(new, options, &SPEC, errors);
    } else {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(&SPEC.field("tolerations"), detail);
    }
}

fn gates_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let at = SPEC.field("schedulingGates");
    let gates = new.items("schedulingGates");
    let repeated = Repeated::later(gates.iter().map(|gate| gate.text("name")));
    let before = first_by(old.items("schedulingGates"), "name");
    for (i, gate) in gates.iter().enumerate() {
        let name = gate.text("name");
        if !repeated.at(i) && !before.contains_key(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&at.index(i).field("name"), detail);
        }
    }
}

/// Returns the new spec with all mutable fields reset to their old values.
fn masked(new: &Value, old: &Value, errors: &mut FieldErrors) -> Value {
    let mut masked = new.clone();
    for list in ["containers", "initContainers"] {
        let containers = masked.get_mut(list).and_then(Value::as_list_mut).into_iter().flatten();
        for (container, before) in containers.zip(old.items(list)) {
            put_back(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put_back(&mut masked, old, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if old.number(grace) < 0 && masked.number(grace) == 1 {
        put_back(&mut masked, old, grace);
    }
    if !old.items("schedulingGates").is_empty() {
        mask_of_gated(&mut masked, old, errors);
    }
    masked
}

fn put_back(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => {
            new.make_map().insert(field, value.clone());
        }
        None => {
            new.remove_at(&[field]);
        }
    }
}

/// Resets `nodeSelector` and node affinity, which a gated pod may make stricter. Reports changes that do not.
fn mask_of_gated(masked: &mut Value, old: &Value, errors: &mut FieldErrors) {
    if !same(masked.part("nodeSelector"), old.part("nodeSelector")) {
        let new_selector = masked.part("nodeSelector");
        let narrower =
            old.text_entries("nodeSelector").all(|(key, value)| new_selector.text_if_set(key) == Some(value));
        if !narrower {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(&SPEC.field("nodeSelector"), new_selector.cloned().unwrap_or_default(), detail);
        }
        put_back(masked, old, "nodeSelector");
    }
    let old_affinity = old.part("affinity");
    let old_node = old_affinity.part("nodeAffinity");
    let new_affinity = masked.part("affinity");
    let new_node = new_affinity.part("nodeAffinity");
    if same(old_node, new_node) {
        return;
    }
    node_affinity_update(new_node, old_node, errors);
    let has_pod_terms =
        ["podAffinity", "podAntiAffinity"].iter().any(|field| new_affinity.part(field).is_some());
    if new_affinity.is_some() && old_affinity.is_none() && !has_pod_terms {
        masked.remove_at(&["affinity"]);
    } else {
        match old_node.cloned() {
            Some(node) => masked.set_at(&["affinity", "nodeAffinity"], node),
            None => {
                masked.remove_at(&["affinity", "nodeAffinity"]);
            }
        }
    }
}

fn node_affinity_update(new: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let at =
        SPEC.field("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let old_required = old.part(REQUIRED);
    let old_terms = old_required.items("nodeSelectorTerms");
    let new_required = new.part(REQUIRED);
    let new_terms = new_required.items("nodeSelectorTerms");
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let json = internal_json::compact("[]NodeSelectorTerm", new_required.part("nodeSelectorTerms"));
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid_json(&at, &json, detail);
        return;
    }
    for (i, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
        if !has_only_additions(new, old) {
            let json = internal_json::compact("NodeSelectorTerm", Some(new));
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid_json(&at.index(i), &json, detail);
        }
    }
}

fn has_only_additions(new: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| old.items(list).is_empty()) {
        return lists.iter().all(|list| new.items(list).is_empty());
    }
    lists.iter().all(|list| {
        let (new, old) = (new.items(list), old.items(list));
        new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(Some(new), Some(old)))
    })
}

/// Validates an update through `ephemeralcontainers`: containers can be added, but not changed or removed.
pub fn update_ephemeral_containers(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    if annotations::is_mirror(old) {
        let mut errors = FieldErrors::new();
        errors.forbidden(&At::ROOT, "static pods do not support ephemeral containers");
        return errors;
    }
    let options = PodValidationOptions::for_pod(Some(old), context);
    let mut errors = meta::update(new, old);
    errors.append(&mut metadata_and_spec(new, &options));
    annotations_update(new, old, &options, &mut errors);
    let at = SPEC.field("ephemeralContainers");
    let (new, old) = (new.part("spec"), old.part("spec"));
    let last = last_by(new.items("ephemeralContainers"), "name");
    for before in old.items("ephemeralContainers") {
        let name = before.text("name");
        let quoted = api::field::quote(name);
        match last.get(name).copied() {
            None => {
                let detail = format!("existing ephemeral containers {quoted} may not be removed\n");
                errors.forbidden(&at, detail);
            }
            Some(after) if !same(Some(after), Some(before)) => {
                let kind = "EphemeralContainer";
                let diff = unified_diff::unified(
                    &internal_json::indented(kind, Some(before)),
                    &internal_json::indented(kind, Some(after)),
                );
                let detail = format!("existing ephemeral containers {quoted} may not be changed\n{diff}");
                errors.forbidden(&at, detail);
            }
            Some(_) => {}
        }
    }
    errors
}

/// Validates an update through the `resize` subresource.
pub fn update_resize(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let options = PodValidationOptions::for_pod(Some(old), context);
    let mut errors = meta::update(new, old);
    errors.append(&mut metadata_and_spec(new, &options));
    crate::validation::pod::resize::resize(new, old, errors)
}

/// Rules of `Binding`, which assigns a pod to a node.
pub(crate) const BINDING: ValidationRules =
    ValidationRules { create: binding, update: super::no_rules, update_status: super::no_rules };

fn binding(binding: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let target = binding.part("target");
    let (kind, name) = (target.text("kind"), target.text("name"));
    let is_node = matches!(kind, "" | "Node");
    if !is_node {
        errors.not_supported(&At::new("target.kind"), kind, &["Node", "<empty>"]);
    }
    if name.is_empty() {
        errors.required(&At::new("target.name"), "");
    } else if is_node {
        errors.invalid_each(&At::new("target.name"), name, names::name_is_dns_subdomain(name, false));
    }
    errors
}
