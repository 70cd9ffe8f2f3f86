//! Hand-written validation of ResourceClaim and ResourceClaimTemplate. See `resource` for declarative validation.

use std::collections::HashSet;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use value::{Value, write};

use super::pod::claims::template_metadata;
use super::pod::scheduling::node_selector;
use super::pod::volume_sources::csi_driver_name;
use super::resource::{
    MAX_CONDITIONS, MAX_PARAMETERS, MAX_PARTS, binding_conditions, configuration, pool_name, raw, selectors,
    tolerations,
};
use super::{
    ValidationContext, ValidationRules, internal_json, no_rules, required_name, resource_declared as declared,
};

pub(crate) const CLAIM: ValidationRules = ValidationRules {
    create: |claim, context| {
        let mut errors = meta::create(claim, true, names::name_is_dns_subdomain);
        claim_spec(claim.part("spec"), &At::new("spec"), context, &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::create(new, true, names::name_is_dns_subdomain);
        errors.extend(meta::update(new, old));
        declared::fixed_spec(new, old, &mut errors);
        errors
    },
    update_status: claim_status,
};
pub(crate) const TEMPLATE: ValidationRules = ValidationRules {
    create: |template, context| {
        let mut errors = written(template);
        declared_of(template, context, &mut errors);
        errors
    },
    update: |new, old, context| {
        let mut errors = written(new);
        errors.extend(meta::update(new, old));
        let (spec, former) = (new.part("spec"), old.part("spec"));
        if !same(spec, former) {
            let shown = internal_json::compact("ResourceClaimTemplateSpec", spec);
            let detail = format!("{shown}: {IMMUTABLE}");
            errors.report(FieldErrorKind::Invalid, &At::new("spec"), None, detail);
        }
        declared_of(new, context, &mut errors);
        errors
    },
    update_status: no_rules,
};

/// Hand-written rules of a template; the declarative ones come last.
fn written(template: &Value) -> FieldErrors {
    let mut errors = meta::create(template, true, names::name_is_dns_subdomain);
    let spec = template.part("spec");
    template_metadata(spec.part("metadata"), &At::new("spec.metadata"), &mut errors);
    written_spec(spec.part("spec"), &At::new("spec.spec"), &mut errors);
    errors
}

fn declared_of(template: &Value, context: &ValidationContext, errors: &mut FieldErrors) {
    let devices = template.part("spec").part("spec").part("devices");
    declared::devices(devices, &At::new("spec.spec.devices"), context, errors);
}

pub(super) const MAX_SUBREQUESTS: usize = 8;
pub(super) const MAX_RESERVED_FOR: usize = 256;

/// Names by which parts of a claim refer to its requests.
fn request_names(devices: Option<&Value>) -> HashSet<String> {
    let mut found = HashSet::new();
    for request in devices.items("requests") {
        let name = request.text("name");
        found.insert(name.to_owned());
        for sub in request.items("firstAvailable") {
            found.insert(format!("{name}/{}", sub.text("name")));
        }
    }
    found
}

/// Items of a list, or none if there are more than `most`, which is reported elsewhere.
fn items_up_to<'a>(holder: Option<&'a Value>, field: &str, most: usize) -> &'a [Value] {
    let items = holder.items(field);
    if items.len() > most { &[] } else { items }
}

fn claim_spec(spec: Option<&Value>, at: &At<'_>, context: &ValidationContext, errors: &mut FieldErrors) {
    written_spec(spec, at, errors);
    declared::devices(spec.part("devices"), &at.field("devices"), context, errors);
}

fn written_spec(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let devices = spec.part("devices");
    let at = at.field("devices");
    let known = request_names(devices);
    let list = at.field("requests");
    for (i, request) in items_up_to(devices, "requests", MAX_PARTS).iter().enumerate() {
        request_rules(request, &list.index(i), errors);
    }
    let list = at.field("constraints");
    for (i, constraint) in items_up_to(devices, "constraints", MAX_PARTS).iter().enumerate() {
        let here = list.index(i);
        request_references(constraint, &known, &here, errors);
        if ["matchAttribute", "distinctAttribute"].iter().all(|field| constraint.part(field).is_none()) {
            let detail = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
            errors.required(&here, detail);
        }
    }
    let list = at.field("config");
    for (i, config) in items_up_to(devices, "config", MAX_PARTS).iter().enumerate() {
        let here = list.index(i);
        request_references(config, &known, &here, errors);
        configuration(config, false, &here, errors);
    }
}

fn request_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(at, name, names::is_dns1123_label(name));
}

fn request_rules(request: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    request_name(request.text("name"), &at.field("name"), errors);
    match (request.part("exactly"), request.items("firstAvailable").is_empty()) {
        (None, true) => errors.required(at, "exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), false) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(at, Value::Null, detail);
        }
        (Some(exactly), true) => {
            let here = at.field("exactly");
            required_name(exactly, "deviceClassName", names::is_dns1123_subdomain, &here, errors);
            device_request(exactly, &here, errors);
        }
        (None, false) => {
            let list = at.field("firstAvailable");
            for (i, choice) in
                items_up_to(Some(request), "firstAvailable", MAX_SUBREQUESTS).iter().enumerate()
            {
                let here = list.index(i);
                request_name(choice.text("name"), &here.field("name"), errors);
                device_request(choice, &here, errors);
            }
        }
    }
}

fn device_request(request: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    selectors(request.items("selectors"), false, &at.field("selectors"), errors);
    let count = request.number("count");
    match request.text("allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.invalid(&at.field("count"), count, detail);
        }
        "ExactCount" if count <= 0 => {
            errors.invalid(&at.field("count"), count, "must be greater than zero");
        }
        // Declarative validation checks the mode, but skips an empty one.
        "" => errors.not_supported(&at.field("allocationMode"), "", &["All", "ExactCount"]),
        _ => {}
    }
    tolerations(request.items("tolerations"), &at.field("tolerations"), errors);
}

fn request_references(holder: &Value, known: &HashSet<String>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("requests");
    for (i, reference) in items_up_to(Some(holder), "requests", MAX_PARTS).iter().enumerate() {
        request_reference(reference.as_str().unwrap_or_default(), known, &list.index(i), errors);
    }
}

fn request_reference(reference: &str, known: &HashSet<String>, at: &At<'_>, errors: &mut FieldErrors) {
    let words = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    if reference.matches('/').count() > 1 {
        errors.invalid(at, reference, words);
        return;
    }
    for part in reference.split('/') {
        request_name(part, at, errors);
    }
    if !known.contains(reference) {
        errors.invalid(at, reference, words);
    }
}

fn claim_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (status, former) = (new.part("status"), old.part("status"));
    let at = At::new("status.reservedFor");
    let users = status.items("reservedFor");
    for (i, user) in items_up_to(status, "reservedFor", MAX_RESERVED_FOR).iter().enumerate() {
        let here = at.index(i);
        for field in ["resource", "name", "uid"] {
            if user.text(field).is_empty() {
                errors.required(&here.field(field), "");
            }
        }
    }
    let allocation = status.part("allocation");
    device_statuses(status, &mut errors);
    if !users.is_empty() {
        let before: HashSet<Vec<u8>> = former.items("reservedFor").iter().map(write::to_vec).collect();
        let added = users.iter().any(|user| !before.contains(&write::to_vec(user)));
        if allocation.is_none() {
            errors.forbidden(&at, "may not be specified when `allocated` is not set");
        } else if api::meta::is_deleting(new) && added {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&at, detail);
        }
    }
    if let (None, Some(now)) = (former.part("allocation"), allocation) {
        let known = request_names(new.part("spec").part("devices"));
        allocation_rules(now, &known, &At::new("status.allocation"), &mut errors);
    }
    declared::claim_status(status, former, &mut errors);
    errors
}

fn device_statuses(status: Option<&Value>, errors: &mut FieldErrors) {
    let id =
        |device: &Value| ["driver", "pool", "device", "shareID"].map(|field| device.text(field).to_owned());
    let allocated: HashSet<[String; 4]> =
        status.part("allocation").part("devices").items("results").iter().map(id).collect();
    let list = At::new("status.devices");
    for (i, device) in status.items("devices").iter().enumerate() {
        let at = list.index(i);
        csi_driver_name(device.text("driver"), &at.field("driver"), errors);
        pool_name(device.text("pool"), &at.field("pool"), errors);
        let name = device.text("device");
        errors.invalid_each(&at.field("device"), name, names::is_dns1123_label(name));
        if !allocated.contains(&id(device)) {
            let shown = internal_json::compact("SharedDeviceID", Some(device));
            let detail = format!("{shown}: must be an allocated device in the claim");
            errors.report(FieldErrorKind::Invalid, &at, None, detail);
        }
        let conditions = device.items("conditions");
        let here = at.field("conditions");
        if conditions.len() > MAX_CONDITIONS {
            errors.too_many(&here, conditions.len(), MAX_CONDITIONS);
        }
        meta::conditions(conditions, &here, errors);
        if let Some(data) = device.part("data") {
            raw(Some(data), MAX_PARAMETERS, &at.field("data"), errors);
        }
        let ips = at.field("networkData.ips");
        for (i, ip) in items_up_to(device.part("networkData"), "ips", declared::MAX_IPS).iter().enumerate() {
            let ip = ip.as_str().unwrap_or_default();
            errors.invalid_each(&ips.index(i), ip, names::is_valid_interface_address(ip));
        }
    }
}

fn allocation_rules(allocation: &Value, known: &HashSet<String>, at: &At<'_>, errors: &mut FieldErrors) {
    let devices = allocation.part("devices");
    let devices_at = at.field("devices");
    let list = devices_at.field("results");
    for (i, result) in items_up_to(devices, "results", MAX_PARTS).iter().enumerate() {
        let here = list.index(i);
        request_reference(result.text("request"), known, &here.field("request"), errors);
        let device = result.text("device");
        errors.invalid_each(&here.field("device"), device, names::is_dns1123_label(device));
        binding_conditions(result, &here, errors);
        tolerations(result.items("tolerations"), &here.field("tolerations"), errors);
    }
    let list = devices_at.field("config");
    for (i, config) in items_up_to(devices, "config", 2 * MAX_PARTS).iter().enumerate() {
        let here = list.index(i);
        request_references(config, known, &here, errors);
        configuration(config, false, &here, errors);
    }
    if let Some(selector) = allocation.part("nodeSelector") {
        node_selector(selector, false, &at.field("nodeSelector"), errors);
    }
}
