//! ResourceClaim and ResourceClaimTemplate.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use value::Value;

use super::fields::{At, IMMUTABLE, Read, Report, same};
use super::pod_claims::template_metadata;
use super::pod_scheduling::node_selector;
use super::pod_volumes::csi_driver_name;
use super::resource::{MAX_PARTS, configuration, pool_name, qualified_name, selectors, tolerations};
use super::{Context, Rules, internal_json, meta, no_rules};

pub(super) const CLAIM: Rules = Rules {
    create: |claim, _| {
        let mut errors = meta::create(claim, true, names::name_is_dns_subdomain);
        claim_spec(claim.part("spec"), &At::new("spec"), &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::create(new, true, names::name_is_dns_subdomain);
        errors.extend(meta::update(new, old));
        fixed_spec(new, old, &mut errors);
        errors
    },
    update_status: claim_status,
};
pub(super) const TEMPLATE: Rules = Rules {
    create: |template, _| template_rules(template),
    update: |new, old, _| {
        let mut errors = template_rules(new);
        errors.extend(meta::update(new, old));
        fixed_spec(new, old, &mut errors);
        errors
    },
    update_status: no_rules,
};

const MAX_SUBREQUESTS: usize = 8;
const MAX_RESERVED_FOR: usize = 256;

fn fixed_spec(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if !same(new.part("spec"), old.part("spec")) {
        errors.invalid(&At::new("spec"), Value::Null, IMMUTABLE);
    }
}

fn template_rules(template: &Value) -> FieldErrors {
    let mut errors = meta::create(template, true, names::name_is_dns_subdomain);
    let spec = template.part("spec");
    template_metadata(spec.part("metadata"), &At::new("spec.metadata"), &mut errors);
    claim_spec(spec.part("spec"), &At::new("spec.spec"), &mut errors);
    errors
}

/// The names by which parts of a claim refer to its requests.
fn request_names(devices: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    for request in devices.items("requests") {
        let name = request.text("name");
        found.push(name.to_owned());
        for sub in request.items("firstAvailable") {
            found.push(format!("{name}/{}", sub.text("name")));
        }
    }
    found
}

fn claim_spec(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let devices = spec.part("devices");
    let at = at.field("devices");
    let known = request_names(devices);
    let requests = devices.items("requests");
    let list = at.field("requests");
    if requests.len() > MAX_PARTS {
        errors.too_many(&list, requests.len(), MAX_PARTS);
    }
    for (i, request) in requests.iter().enumerate() {
        let here = list.index(i);
        request_rules(request, &here, errors);
        let name = request.text("name");
        if requests.iter().take(i).any(|earlier| earlier.text("name") == name) {
            let shown = internal_json::compact("v1.DeviceRequest", Some(request));
            errors.report(FieldErrorKind::Duplicate, &here, None, shown);
        }
    }
    let constraints = devices.items("constraints");
    let list = at.field("constraints");
    if constraints.len() > MAX_PARTS {
        errors.too_many(&list, constraints.len(), MAX_PARTS);
    }
    for (i, constraint) in constraints.iter().enumerate() {
        let here = list.index(i);
        request_references(constraint, &known, &here, errors);
        let attributes = ["matchAttribute", "distinctAttribute"];
        let named = attributes.iter().find_map(|field| Some((*field, constraint.text_if_set(field)?)));
        if let Some((field, attribute)) = named {
            qualified_attribute(attribute, &here.field(field), errors);
        } else {
            let detail = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
            errors.required(&here, detail);
        }
    }
    let configs = devices.items("config");
    let list = at.field("config");
    if configs.len() > MAX_PARTS {
        errors.too_many(&list, configs.len(), MAX_PARTS);
    }
    for (i, config) in configs.iter().enumerate() {
        let here = list.index(i);
        request_references(config, &known, &here, errors);
        configuration(config, &here, errors);
    }
    // Kubernetes' declared rules are judged after the written ones.
    let (declared, written): (FieldErrors, FieldErrors) = std::mem::take(errors)
        .into_iter()
        .partition(|error| error.field.ends_with(".exactly.allocationMode"));
    errors.extend(written);
    errors.extend(declared);
}

fn request_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(at, name, names::is_dns1123_label(name));
}

fn request_rules(request: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    request_name(request.text("name"), &at.field("name"), errors);
    let exactly = request.part("exactly");
    let choices = request.items("firstAvailable");
    match (exactly, choices.is_empty()) {
        (None, true) => errors.required(at, "exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), false) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(at, Value::Null, detail);
        }
        (Some(exactly), true) => device_request(exactly, &at.field("exactly"), errors),
        (None, false) => {
            let list = at.field("firstAvailable");
            if choices.len() > MAX_SUBREQUESTS {
                errors.too_many(&list, choices.len(), MAX_SUBREQUESTS);
            }
            for (i, choice) in choices.iter().enumerate() {
                let here = list.index(i);
                let name = choice.text("name");
                request_name(name, &here.field("name"), errors);
                device_request(choice, &here, errors);
                if choices.iter().take(i).any(|earlier| earlier.text("name") == name) {
                    let shown = internal_json::compact("v1.DeviceSubRequest", Some(choice));
                    errors.report(FieldErrorKind::Duplicate, &here, None, shown);
                }
            }
        }
    }
}

fn device_request(request: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let class = request.text("deviceClassName");
    if class.is_empty() {
        errors.required(&at.field("deviceClassName"), "");
    } else {
        errors.invalid_each(&at.field("deviceClassName"), class, names::is_dns1123_subdomain(class));
    }
    selectors(request.items("selectors"), &at.field("selectors"), errors);
    let count = request.number("count");
    match request.text("allocationMode") {
        "All" => {
            if count != 0 {
                let detail = "must not be specified when allocationMode is 'All'";
                errors.invalid(&at.field("count"), count, detail);
            }
        }
        "ExactCount" => {
            if count <= 0 {
                errors.invalid(&at.field("count"), count, "must be greater than zero");
            }
        }
        other => errors.not_supported(&at.field("allocationMode"), other, &["All", "ExactCount"]),
    }
    tolerations(request.items("tolerations"), &at.field("tolerations"), errors);
}

fn request_references(holder: &Value, known: &[String], at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("requests");
    let references: Vec<&str> = holder.texts("requests").collect();
    if references.len() > MAX_PARTS {
        errors.too_many(&list, references.len(), MAX_PARTS);
    }
    for (i, reference) in references.iter().enumerate() {
        request_reference(reference, known, &list.index(i), errors);
        if references.iter().take(i).any(|earlier| earlier == reference) {
            errors.duplicate(&list.index(i), *reference);
        }
    }
}

fn request_reference(reference: &str, known: &[String], at: &At<'_>, errors: &mut FieldErrors) {
    let words = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    if reference.matches('/').count() > 1 {
        errors.invalid(at, reference, words);
        return;
    }
    for part in reference.split('/') {
        request_name(part, at, errors);
    }
    if !known.iter().any(|name| name == reference) {
        errors.invalid(at, reference, words);
    }
}

/// The full name of an attribute: a domain and an identifier.
fn qualified_attribute(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    qualified_name(name, at, errors);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(at, name, detail);
    }
}

fn claim_status(new: &Value, old: &Value, _: &Context) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (status, former) = (new.part("status"), old.part("status"));
    let at = At::new("status.reservedFor");
    let users = status.items("reservedFor");
    if users.len() > MAX_RESERVED_FOR {
        errors.too_many(&at, users.len(), MAX_RESERVED_FOR);
    }
    for (i, user) in users.iter().enumerate() {
        let here = at.index(i);
        for field in ["resource", "name", "uid"] {
            if user.text(field).is_empty() {
                errors.required(&here.field(field), "");
            }
        }
        if users.iter().take(i).any(|earlier| earlier.text("uid") == user.text("uid")) {
            errors.duplicate(&here.field("uid"), user.text("uid"));
        }
    }
    let allocation = status.part("allocation");
    device_statuses(status, &mut errors);
    if !users.is_empty() {
        let added = users.iter().any(|user| !former.items("reservedFor").contains(user));
        if allocation.is_none() {
            errors.forbidden(&at, "may not be specified when `allocated` is not set");
        } else if api::meta::is_deleting(new) && added {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&at, detail);
        }
    }
    let at = At::new("status.allocation");
    match (former.part("allocation"), allocation) {
        (Some(before), Some(now)) if !same(Some(before), Some(now)) => {
            errors.invalid(&at, Value::Null, IMMUTABLE);
        }
        (None, Some(now)) => {
            allocation_rules(now, &request_names(new.part("spec").part("devices")), &at, &mut errors);
        }
        _ => {}
    }
    errors
}

fn device_statuses(status: Option<&Value>, errors: &mut FieldErrors) {
    let id =
        |device: &Value| ["driver", "pool", "device", "shareID"].map(|field| device.text(field).to_owned());
    let allocated: Vec<_> =
        status.part("allocation").part("devices").items("results").iter().map(id).collect();
    let list = At::new("status.devices");
    let devices = status.items("devices");
    for (i, device) in devices.iter().enumerate() {
        let at = list.index(i);
        csi_driver_name(device.text("driver"), &at.field("driver"), errors);
        pool_name(device.text("pool"), &at.field("pool"), errors);
        let name = device.text("device");
        errors.invalid_each(&at.field("device"), name, names::is_dns1123_label(name));
        if !allocated.contains(&id(device)) {
            let detail = format!(
                "\"{}/{}/{name}\": must be an allocated device in the claim",
                device.text("driver"),
                device.text("pool")
            );
            errors.report(FieldErrorKind::Invalid, &at, None, detail);
        }
        meta::conditions(device.items("conditions"), &at.field("conditions"), errors);
        if devices.iter().take(i).any(|earlier| id(earlier) == id(device)) {
            errors.duplicate(&at, id(device).join("/"));
        }
    }
}

fn allocation_rules(allocation: &Value, known: &[String], at: &At<'_>, errors: &mut FieldErrors) {
    let devices = allocation.part("devices");
    let devices_at = at.field("devices");
    let results = devices.items("results");
    let list = devices_at.field("results");
    if results.len() > MAX_PARTS {
        errors.too_many(&list, results.len(), MAX_PARTS);
    }
    for (i, result) in results.iter().enumerate() {
        let here = list.index(i);
        request_reference(result.text("request"), known, &here.field("request"), errors);
        csi_driver_name(result.text("driver"), &here.field("driver"), errors);
        pool_name(result.text("pool"), &here.field("pool"), errors);
        let device = result.text("device");
        errors.invalid_each(&here.field("device"), device, names::is_dns1123_label(device));
        tolerations(result.items("tolerations"), &here.field("tolerations"), errors);
    }
    let configs = devices.items("config");
    let list = devices_at.field("config");
    if configs.len() > 2 * MAX_PARTS {
        errors.too_many(&list, configs.len(), 2 * MAX_PARTS);
    }
    for (i, config) in configs.iter().enumerate() {
        let here = list.index(i);
        match config.text("source") {
            "" => errors.required(&here.field("source"), ""),
            "FromClaim" | "FromClass" => {}
            other => errors.not_supported(&here.field("source"), other, &["FromClaim", "FromClass"]),
        }
        request_references(config, known, &here, errors);
        configuration(config, &here, errors);
    }
    if let Some(selector) = allocation.part("nodeSelector") {
        node_selector(selector, false, &at.field("nodeSelector"), errors);
    }
}
