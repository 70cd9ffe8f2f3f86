//! Declarative validation of `resource.k8s.io`. Its errors come after those of the hand-written rules, cover only
//! changed fields, and use the field paths of the request's version.

use std::collections::HashMap;
use std::hash::Hash;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::repeated::{Repeated, first_by};
use value::{Value, write};

use super::resource::{MAX_BINDING_CONDITIONS, MAX_PARTS, identifier};
use super::resource_claim::{MAX_RESERVED_FOR, MAX_SUBREQUESTS};
use super::resource_pool_status::{long_name_in_any_case, pool};
use super::resource_slice::{MAX_CONSUMED_SETS, MAX_COUNTER_SETS};
use super::{ValidationContext, internal_json};

const SPEC: At<'static> = At::new("spec");
const MAX_DRIVER: usize = 63;
/// Maximum length of the domain of an attribute or capacity.
pub(super) const MAX_DOMAIN: usize = 63;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Adapts messages to the wording of declarative validation, which counts bytes.
pub(super) fn in_bytes(details: Vec<String>) -> impl Iterator<Item = String> {
    details.into_iter().map(|detail| {
        if detail.contains("must be no more than") { detail.replace(" characters", " bytes") } else { detail }
    })
}

pub(super) fn subdomain(name: &str) -> impl Iterator<Item = String> {
    in_bytes(names::is_dns1123_subdomain(name))
}

fn label(name: &str) -> impl Iterator<Item = String> {
    in_bytes(names::is_dns1123_label(name))
}

/// Returns true if the field is unchanged, so that its rules are skipped.
fn unchanged(new: Option<&Value>, old: Option<&Value>, field: &str) -> bool {
    old.is_some() && same(new.part(field), old.part(field))
}

pub(super) fn class(class: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let name = api::meta::name(class);
    if !name.is_empty() && old.is_none_or(|old| api::meta::name(old) != name) {
        errors.invalid_each(&At::new("metadata.name"), name, subdomain(name));
    }
    let (spec, old) = (class.part("spec"), old.part("spec"));
    if !unchanged(spec, old, "selectors") {
        limited(spec, "selectors", MAX_PARTS, &SPEC, errors);
    }
    if !unchanged(spec, old, "config") && limited(spec, "config", MAX_PARTS, &SPEC, errors) {
        let list = SPEC.field("config");
        for (i, config) in spec.items("config").iter().enumerate() {
            opaque_driver(config, &list.index(i), errors);
        }
    }
    if !unchanged(spec, old, "extendedResourceName")
        && let Some(name) = spec.text_if_set("extendedResourceName")
    {
        extended_name(name, &SPEC.field("extendedResourceName"), errors);
    }
}

fn extended_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if !name.contains('/') {
        errors.invalid(at, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'");
    } else if name.contains("kubernetes.io/") {
        errors.invalid(at, name, "must not have \"kubernetes.io/\" domain");
    }
    if name.starts_with("requests.") {
        errors.invalid(at, name, "must not have \"requests.\" prefix");
    }
    errors.invalid_each(at, name, in_bytes(names::is_qualified_name(&format!("requests.{name}"))));
}

/// Returns true if the list has at most `most` items. Longer lists are reported and not checked further.
pub(super) fn limited(
    holder: Option<&Value>,
    field: &str,
    most: usize,
    at: &At<'_>,
    errors: &mut FieldErrors,
) -> bool {
    let count = holder.items(field).len();
    if count > most {
        errors.too_many(&at.field(field), count, most);
    }
    count <= most
}

/// Reports items whose key equals that of an earlier item, printed as the type `kind`.
pub(super) fn unique<'a, K: Hash + Eq>(
    list: &'a [Value],
    kind: &str,
    at: &At<'_>,
    errors: &mut FieldErrors,
    key: impl Fn(&'a Value) -> K,
) {
    let repeated = Repeated::earlier(list.iter().map(key));
    for (i, item) in list.iter().enumerate() {
        if repeated.at(i) {
            let shown = internal_json::compact(kind, Some(item));
            errors.report(FieldErrorKind::Duplicate, &at.index(i), None, shown);
        }
    }
}

fn opaque_driver(config: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(opaque) = config.part("opaque") {
        driver(opaque.text("driver"), &at.field("opaque.driver"), errors);
    }
}

fn driver(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    long_name_in_any_case(name, at, errors);
    if name.chars().count() > MAX_DRIVER {
        let detail = format!("may not be more than {MAX_DRIVER} characters");
        errors.report(FieldErrorKind::TooLong, at, None, detail);
    }
}

/// Validates the full name of an attribute: a domain and an identifier.
fn attribute_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    match name.split_once('/') {
        None => {
            identifier(name, at, errors);
            errors.invalid(
                at,
                name,
                "a fully qualified name must be a domain and a name separated by a slash",
            );
        }
        Some((_, id)) if id.contains('/') => {}
        Some((domain, id)) => {
            if domain.is_empty() {
                errors.invalid(at, "", "prefix must not be empty");
            } else {
                if domain.len() > MAX_DOMAIN {
                    errors.too_long(at, MAX_DOMAIN);
                }
                for detail in subdomain(domain) {
                    errors.invalid(at, domain, format!("prefix: {detail}"));
                }
            }
            if id.is_empty() {
                errors.invalid(at, "", "name must not be empty");
            } else {
                identifier(id, at, errors);
            }
        }
    }
}

fn one_of(text: &str, supported: &[&str], required: bool, at: &At<'_>, errors: &mut FieldErrors) {
    if text.is_empty() {
        if required {
            errors.required(at, "");
        }
    } else if !supported.contains(&text) {
        errors.not_supported(at, text, supported);
    }
}

fn tolerations(holder: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("tolerations");
    for (i, toleration) in holder.items("tolerations").iter().enumerate() {
        let here = list.index(i);
        let key = toleration.text("key");
        if !key.is_empty() {
            errors.invalid_each(&here.field("key"), key, in_bytes(names::is_qualified_name(key)));
        }
        one_of(toleration.text("operator"), &["Equal", "Exists"], true, &here.field("operator"), errors);
        one_of(toleration.text("effect"), &EFFECTS, false, &here.field("effect"), errors);
    }
}

/// Validates the request names to which a constraint or configuration refers.
fn references(holder: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if limited(Some(holder), "requests", MAX_PARTS, at, errors) {
        let list = at.field("requests");
        unique(holder.items("requests"), "text", &list, errors, write::to_vec);
    }
}

/// Validates the devices of a new claim or of a claim template.
pub(super) fn devices(
    devices: Option<&Value>,
    at: &At<'_>,
    context: &ValidationContext,
    errors: &mut FieldErrors,
) {
    let mut found = FieldErrors::new();
    let flat = context.version == FLAT;
    requests(devices, at, flat, &mut found);
    if limited(devices, "constraints", MAX_PARTS, at, &mut found) {
        let list = at.field("constraints");
        for (i, constraint) in devices.items("constraints").iter().enumerate() {
            let here = list.index(i);
            references(constraint, &here, &mut found);
            for field in ["matchAttribute", "distinctAttribute"] {
                if let Some(name) = constraint.text_if_set(field) {
                    attribute_name(name, &here.field(field), &mut found);
                }
            }
        }
    }
    if limited(devices, "config", MAX_PARTS, at, &mut found) {
        let list = at.field("config");
        for (i, config) in devices.items("config").iter().enumerate() {
            let here = list.index(i);
            references(config, &here, &mut found);
            opaque_driver(config, &here, &mut found);
        }
    }
    if flat {
        for error in found.iter_mut() {
            error.field = error.field.replace("].exactly.", "].");
        }
    }
    errors.extend(found);
}

/// Version in which the fields of a request are not in `exactly`, and those of a device are in `basic`.
const FLAT: &str = "v1beta1";

fn requests(devices: Option<&Value>, at: &At<'_>, flat: bool, errors: &mut FieldErrors) {
    if !limited(devices, "requests", MAX_PARTS, at, errors) {
        return;
    }
    let list = at.field("requests");
    let requests = devices.items("requests");
    let kind = if flat { "v1beta1.DeviceRequest" } else { "v1.DeviceRequest" };
    unique(requests, kind, &list, errors, |request| request.text("name"));
    for (i, request) in requests.iter().enumerate() {
        let here = list.index(i);
        if let Some(exactly) = request.part("exactly") {
            request_parts(exactly, &here.field("exactly"), errors);
        }
        if !limited(Some(request), "firstAvailable", MAX_SUBREQUESTS, &here, errors) {
            continue;
        }
        let choices = here.field("firstAvailable");
        let subrequests = request.items("firstAvailable");
        unique(subrequests, "v1.DeviceSubRequest", &choices, errors, |choice| choice.text("name"));
        for (i, choice) in request.items("firstAvailable").iter().enumerate() {
            let at = choices.index(i);
            let class = choice.text("deviceClassName");
            if class.is_empty() {
                errors.required(&at.field("deviceClassName"), "");
            } else {
                errors.invalid_each(&at.field("deviceClassName"), class, subdomain(class));
            }
            request_parts(choice, &at, errors);
        }
    }
}

fn request_parts(request: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    limited(Some(request), "selectors", MAX_PARTS, at, errors);
    let mode = request.text("allocationMode");
    one_of(mode, &["All", "ExactCount"], false, &at.field("allocationMode"), errors);
    tolerations(request, at, errors);
}

/// Rejects changes of a claim's spec.
pub(super) fn fixed_spec(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if !same(new.part("spec"), old.part("spec")) {
        errors.invalid(&SPEC, Value::Null, IMMUTABLE);
    }
}

pub(super) fn claim_status(status: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let at = At::new("status");
    if let Some(allocation) = status.part("allocation")
        && !same(Some(allocation), old.part("allocation"))
    {
        let at = at.field("allocation");
        if old.part("allocation").is_some() {
            errors.invalid(&at, Value::Null, "field cannot be modified once set");
        } else {
            allocated(allocation.part("devices"), &at.field("devices"), errors);
        }
    }
    if !same(status.part("reservedFor"), old.part("reservedFor"))
        && limited(status, "reservedFor", MAX_RESERVED_FOR, &at, errors)
    {
        unique(
            status.items("reservedFor"),
            "v1.ResourceClaimConsumerReference",
            &at.field("reservedFor"),
            errors,
            |user| user.text("uid"),
        );
    }
    if !same(status.part("devices"), old.part("devices")) {
        device_statuses(status.items("devices"), old.items("devices"), &at.field("devices"), errors);
    }
}

fn allocated(devices: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    if limited(devices, "results", MAX_PARTS, at, errors) {
        let list = at.field("results");
        for (i, result) in devices.items("results").iter().enumerate() {
            let here = list.index(i);
            driver(result.text("driver"), &here.field("driver"), errors);
            pool(result.text("pool"), &here.field("pool"), errors);
            tolerations(result, &here, errors);
            for field in ["bindingConditions", "bindingFailureConditions"] {
                limited(Some(result), field, MAX_BINDING_CONDITIONS, &here, errors);
            }
            share_id(result, &here, errors);
        }
    }
    if limited(devices, "config", 2 * MAX_PARTS, at, errors) {
        let list = at.field("config");
        for (i, config) in devices.items("config").iter().enumerate() {
            let here = list.index(i);
            one_of(config.text("source"), &["FromClaim", "FromClass"], true, &here.field("source"), errors);
            references(config, &here, errors);
            opaque_driver(config, &here, errors);
        }
    }
}

fn share_id(holder: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(id) = holder.text_if_set("shareID") else { return };
    let is_uuid = id.len() == 36
        && id.bytes().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    if !is_uuid {
        errors.invalid(&at.field("shareID"), id, "must be a lowercase UUID in 8-4-4-4-12 format");
    }
}

/// Key of a device status: driver, pool, device and share ID.
type DeviceId<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

fn device_id(device: &Value) -> DeviceId<'_> {
    (device.text("driver"), device.text("pool"), device.text("device"), device.text_if_set("shareID"))
}

fn device_statuses(devices: &[Value], old: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    unique(devices, "v1.AllocatedDeviceStatus", at, errors, device_id);
    let before: HashMap<DeviceId<'_>, &Value> =
        old.iter().rev().map(|device| (device_id(device), device)).collect();
    for (i, device) in devices.iter().enumerate() {
        let former = before.get(&device_id(device)).copied();
        if former.is_some_and(|former| same(Some(former), Some(device))) {
            continue;
        }
        let here = at.index(i);
        share_id(device, &here, errors);
        let Some(network) = device.part("networkData") else { continue };
        let at = here.field("networkData");
        let short = |field: &'static str, most: usize, errors: &mut FieldErrors| {
            if network.text(field).len() > most {
                errors.too_long(&at.field(field), most);
            }
        };
        short("interfaceName", 256, errors);
        if limited(Some(network), "ips", MAX_IPS, &at, errors) {
            unique(network.items("ips"), "text", &at.field("ips"), errors, write::to_vec);
        }
        short("hardwareAddress", 128, errors);
    }
}

/// Maximum number of addresses of a network device.
pub(super) const MAX_IPS: usize = 16;

pub(super) fn slice(
    slice: &Value,
    old: Option<&Value>,
    context: &ValidationContext,
    errors: &mut FieldErrors,
) {
    let (spec, old) = (slice.part("spec"), old.part("spec"));
    let mut found = FieldErrors::new();
    if !unchanged(spec, old, "devices") {
        let list = SPEC.field("devices");
        for (i, each) in spec.items("devices").iter().enumerate() {
            device(each, &list.index(i), &mut found);
        }
        if context.version == FLAT {
            for error in found.iter_mut() {
                error.field = error.field.replacen("].", "].basic.", 1);
            }
        }
    }
    let sets = spec.items("sharedCounters");
    if !unchanged(spec, old, "sharedCounters")
        && limited(spec, "sharedCounters", MAX_COUNTER_SETS, &SPEC, &mut found)
    {
        let list = SPEC.field("sharedCounters");
        unique(sets, "v1.CounterSet", &list, &mut found, |set| set.text("name"));
        let before = first_by(old.items("sharedCounters"), "name");
        for (i, set) in sets.iter().enumerate() {
            let former = before.get(set.text("name")).copied();
            if former.is_none_or(|former| !same(Some(former), Some(set))) {
                counters(set, "name", &list.index(i), &mut found);
            }
        }
    }
    errors.extend(found);
}

fn device(device: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let attributes = at.field("attributes");
    for (key, attribute) in device.entries("attributes") {
        one_value(attribute, &attributes.key(key), errors);
    }
    if limited(Some(device), "consumesCounters", MAX_CONSUMED_SETS, at, errors) {
        let consumed = device.items("consumesCounters");
        let list = at.field("consumesCounters");
        unique(consumed, "v1.DeviceCounterConsumption", &list, errors, |set| set.text("counterSet"));
        for (i, set) in consumed.iter().enumerate() {
            counters(set, "counterSet", &list.index(i), errors);
        }
    }
    let taints = at.field("taints");
    for (i, taint) in device.items("taints").iter().enumerate() {
        one_of(taint.text("effect"), &EFFECTS, true, &taints.index(i).field("effect"), errors);
    }
    for field in ["bindingConditions", "bindingFailureConditions"] {
        limited(Some(device), field, MAX_BINDING_CONDITIONS, at, errors);
    }
}

/// Checks that an attribute has exactly one value.
fn one_value(attribute: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const MEMBERS: [&str; 8] = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    let set: Vec<&str> = MEMBERS.into_iter().filter(|field| attribute.part(field).is_some()).collect();
    let members = MEMBERS.map(|member| format!("`{member}`")).join(", ");
    match set.len() {
        0 => errors.invalid(at, "", format!("must specify one of: {members}")),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid(at, shown, format!("must specify exactly one of: {members}"));
        }
    }
}

fn counters(set: &Value, name_field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let name = set.text(name_field);
    if name.is_empty() {
        errors.required(&at.field(name_field), "");
    } else {
        errors.invalid_each(&at.field(name_field), name, label(name));
    }
    let list = at.field("counters");
    if set.map_of("counters").is_none_or(value::Map::is_empty) {
        errors.required(&list, "");
    }
    for (key, _) in set.entries("counters") {
        errors.invalid_each(&list, key, label(key));
    }
}

pub(super) fn taint_rule(rule: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let taint = |rule: &Value| rule.part("spec").part("taint").text("effect").to_owned();
    let effect = taint(rule);
    if old.is_none_or(|old| taint(old) != effect) {
        one_of(&effect, &EFFECTS, true, &SPEC.field("taint.effect"), errors);
    }
}
