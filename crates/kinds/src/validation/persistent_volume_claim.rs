//! Validation of PersistentVolumeClaim: create, update and status.

use api::meta::STORAGE_CLASS;
use api::pod_resources::is_native;
use api::quantity::Quantity;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::pod::claims::claim_spec;
use super::pod::resources::resource_quantity;
use super::{ValidationContext, ValidationRules, internal_json, unified_diff};

pub(crate) const PERSISTENT_VOLUME_CLAIM: ValidationRules =
    ValidationRules { create: claim, update: claim_update, update_status: claim_status_update };

/// Annotation that named the storage class before the field existed.
const SPEC: At<'static> = At::new("spec");

fn claim(claim: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(claim, true, names::name_is_dns_subdomain);
    claim_spec(claim.part("spec"), false, &SPEC, &mut errors);
    errors
}

fn claim_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let mut old = old.clone();
    normalize_sources(&mut old);
    let old = &old;
    let former = old.part("spec");
    let has_group =
        ["dataSource", "dataSourceRef"].iter().any(|field| former.part(field).part("apiGroup").is_some());
    errors.extend(meta::create(new, true, names::name_is_dns_subdomain));
    claim_spec(new.part("spec"), has_group, &SPEC, &mut errors);

    let (masked, masked_old) = masked_specs(new, old, &mut errors);
    if !same(Some(&masked), Some(&masked_old)) {
        let diff = unified_diff::unified(
            &internal_json::indented("PersistentVolumeClaimSpec", Some(&masked_old)),
            &internal_json::indented("PersistentVolumeClaimSpec", Some(&masked)),
        );
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{diff}"
        );
        errors.forbidden(&SPEC, detail);
    }
    let amount = |claim: &Value, path: &[&str]| {
        claim.str_at(path).and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
    };
    let request = ["spec", "resources", "requests", "storage"];
    let (now, before) = (amount(new, &request), amount(old, &request));
    if now < before && now <= amount(old, &["status", "capacity", "storage"]) {
        let at = At::new("spec.resources.requests.storage");
        errors.forbidden(&at, "field can not be less than status.capacity");
    }
    let spec = new.part("spec");
    errors.immutable(&At::new("volumeMode"), spec.part("volumeMode"), former.part("volumeMode"));
    let class = "volumeAttributesClassName";
    if !same(spec.part(class), former.part(class))
        && old.part("status").part("currentVolumeAttributesClassName").is_some()
    {
        let words = "is forbidden when status.currentVolumeAttributesClassName is not nil";
        match spec.text_if_set(class) {
            None => errors.forbidden(&SPEC.field(class), format!("update to nil {words}")),
            Some("") => errors.forbidden(&SPEC.field(class), format!("update to empty string {words}")),
            Some(_) => {}
        }
    }
    errors
}

/// Returns both specs with the mutable fields made equal.
fn masked_specs(new: &Value, old: &Value, errors: &mut FieldErrors) -> (Value, Value) {
    let annotation = |claim: &Value| {
        claim.part("metadata").part("annotations").text_if_set(STORAGE_CLASS).map(str::to_owned)
    };
    let class = |claim: &Value| claim.part("spec").text_if_set("storageClassName").map(str::to_owned);
    let mut spec = new.part("spec").cloned().unwrap_or_default();
    let mut former = old.part("spec").cloned().unwrap_or_default();
    if former.text("volumeName").is_empty()
        && let Some(volume) = spec.part("volumeName").cloned()
    {
        former.set_at(&["volumeName"], volume);
    }
    let (noted, now_noted) = (annotation(old), annotation(new));
    let (named, now_named) = (class(old), class(new));
    let moves_to_field = noted.is_some()
        && named.is_none()
        && now_named == noted
        && now_noted.as_ref().is_none_or(|now| Some(now) == noted.as_ref());
    if moves_to_field {
        spec.remove_at(&["storageClassName"]);
    } else {
        let (now, before) = (now_noted.unwrap_or_default(), noted.clone().unwrap_or_default());
        if now != before {
            let at = At::new("metadata.annotations");
            errors.invalid(&at.field(STORAGE_CLASS), now.as_str(), IMMUTABLE);
        }
        if now_named.is_some() && named.is_none() && (noted.is_none() || now_named == noted) {
            spec.remove_at(&["storageClassName"]);
        }
    }
    if new.part("status").text("phase") == "Bound" {
        if spec.part("resources").part("requests").is_some() {
            let request = ["resources", "requests", "storage"];
            match former.at(&request).cloned() {
                Some(amount) => spec.set_at(&request, amount),
                None => spec.set_at(&request, "0"),
            }
        }
        let class = "volumeAttributesClassName";
        match former.part(class).cloned() {
            Some(name) => spec.set_at(&[class], name),
            None => drop(spec.remove_at(&[class])),
        }
    }
    (spec, former)
}

fn claim_status_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    const RESIZE: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let mut errors = meta::update(new, old);
    if api::meta::resource_version(new).is_empty() {
        errors.required(&At::new("resourceVersion"), "");
    }
    if new.part("spec").items("accessModes").is_empty() {
        errors.required(&At::new("Spec.accessModes"), "");
    }
    let status = new.part("status");
    let at = At::new("status.capacity");
    for (resource, amount) in status.text_entries("capacity") {
        basic_amount(amount, &at.key(resource), &mut errors);
    }
    let at = At::new("status.allocatedResourceStatuses");
    for (resource, state) in status.text_entries("allocatedResourceStatuses") {
        claim_resource(resource, &at, &mut errors);
        if !RESIZE.contains(&state) {
            errors.not_supported(&at, resource, &RESIZE);
        }
    }
    let at = At::new("status.allocatedResources");
    for (resource, amount) in status.text_entries("allocatedResources") {
        if !claim_resource(resource, &at, &mut errors) {
            continue;
        }
        if basic_amount(amount, &at.key(resource), &mut errors)
            && let Ok(amount) = Quantity::parse(amount)
        {
            resource_quantity("storage", &amount, &at.key(resource), &mut errors);
        }
    }
    errors
}

fn basic_amount(amount: &str, at: &At<'_>, errors: &mut FieldErrors) -> bool {
    match Quantity::parse(amount) {
        Ok(amount) if amount.value() < 0 => {
            errors.invalid(at, amount.value(), "must be a valid resource quantity");
            false
        }
        _ => true,
    }
}

fn claim_resource(name: &str, at: &At<'_>, errors: &mut FieldErrors) -> bool {
    let wrong = names::is_qualified_name(name);
    if !wrong.is_empty() {
        errors.invalid_each(at, name, wrong);
        return false;
    }
    if is_native(name) && name != "storage" {
        errors.not_supported(at, name, &["storage"]);
        return false;
    }
    true
}

/// Copies `dataSource` to `dataSourceRef` or the reverse, if one of them is missing.
pub(crate) fn normalize_sources(claim: &mut Value) {
    let spec = claim.part("spec");
    let (source, reference) = (spec.part("dataSource"), spec.part("dataSourceRef"));
    let (field, from) = match (source, reference) {
        (Some(source), None) => ("dataSourceRef", source),
        (None, Some(reference)) if reference.text("namespace").is_empty() => ("dataSource", reference),
        _ => return,
    };
    let mut copy = value::Map::new();
    for part in ["apiGroup", "kind", "name"] {
        if let Some(value) = from.get(part) {
            copy.insert(part, value.clone());
        }
    }
    claim.set_at(&["spec", field], copy);
}
