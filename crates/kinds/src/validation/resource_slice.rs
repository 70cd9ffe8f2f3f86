//! Hand-written validation of ResourceSlice. See `resource` for declarative validation.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, Read, Report, same};
use api::validation::meta;
use api::validation::repeated::{Repeated, first_by};
use value::text::first_bytes;
use value::{Str, Value};

use super::pod::scheduling::node_selector;
use super::pod::volume_sources::csi_driver_name;
use super::resource::{MAX_ID, binding_conditions, pool_name, qualified_name, taint};
use super::{
    ValidationRules, internal_json, no_rules, resource_capacity as capacity, resource_declared as declared,
};

pub(crate) const SLICE: ValidationRules = ValidationRules {
    create: |slice, context| {
        let mut errors = meta::create(slice, false, names::name_is_dns_subdomain);
        spec_rules(slice.part("spec"), None, &mut errors);
        declared::slice(slice, None, context, &mut errors);
        errors
    },
    update: |new, old, context| {
        let mut errors = meta::update(new, old);
        spec_rules(new.part("spec"), old.part("spec"), &mut errors);
        declared::slice(new, Some(old), context, &mut errors);
        errors
    },
    update_status: no_rules,
};

const SPEC: At<'static> = At::new("spec");
const MAX_DEVICES: usize = 128;
const MAX_ADVANCED_DEVICES: usize = 64;
pub(super) const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
pub(super) const MAX_CONSUMED_SETS: usize = 2;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_TAINTS: usize = 16;
const MAX_ATTRIBUTE_LENGTH: usize = 64;
/// Maximum length of a key in an error path.
const MAX_KEY_SHOWN: usize = declared::MAX_DOMAIN + 1 + MAX_ID;
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

fn spec_rules(spec: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    csi_driver_name(spec.text("driver"), &SPEC.field("driver"), errors);
    let pool = spec.part("pool");
    let at = SPEC.field("pool");
    pool_name(pool.text("name"), &at.field("name"), errors);
    let count = pool.number("resourceSliceCount");
    if count <= 0 {
        errors.invalid(&at.field("resourceSliceCount"), count, "must be greater than zero");
    }
    let generation = pool.number("generation");
    if generation < 0 {
        errors.invalid(&at.field("generation"), generation, "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        let name = old.part("pool").part("name");
        let empty = Value::String(Str::new_static(""));
        errors.immutable(&at.field("name"), pool.part("name").or(Some(&empty)), name);
        errors.immutable(&SPEC.field("driver"), spec.part("driver").or(Some(&empty)), old.part("driver"));
        errors.immutable(&SPEC.field("nodeName"), spec.part("nodeName"), old.part("nodeName"));
    }
    node_choice(spec, errors);
    if spec.part("sharedCounters").is_some() && spec.part("devices").is_some() {
        errors.invalid(&SPEC, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    devices(spec, old, errors);
    let sets = spec.items("sharedCounters");
    if sets.len() <= MAX_COUNTER_SETS {
        let list = SPEC.field("sharedCounters");
        for (i, set) in sets.iter().enumerate() {
            few_counters(set, &list.index(i), errors);
        }
    }
}

fn devices(spec: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let devices = spec.items("devices");
    let advanced = devices.iter().any(|device| {
        !device.items("taints").is_empty()
            || !device.items("consumesCounters").is_empty()
            || device
                .entries("attributes")
                .any(|(_, attribute)| LISTS.iter().any(|list| attribute.part(list).is_some()))
    });
    let most = if advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let list = SPEC.field("devices");
    if devices.len() > most {
        errors.too_many(&list, devices.len(), most);
        return;
    }
    let before = first_by(old.items("devices"), "name");
    for (i, device) in devices.iter().enumerate() {
        let former = before.get(device.text("name")).copied();
        let at = list.index(i);
        device_rules(device, former, spec.flag("perDeviceNodeSelection"), &at, errors);
    }
    let repeated = Repeated::of_field(devices, "name");
    for (i, device) in devices.iter().enumerate() {
        if repeated.at(i) {
            errors.duplicate(&list.index(i), device.text("name"));
        }
    }
}

/// Checks that exactly one field selects the nodes that can access the devices.
fn node_choice(spec: Option<&Value>, errors: &mut FieldErrors) {
    const WORDS: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    if let Some(name) = spec.text_if_set("nodeName") {
        let at = SPEC.field("nodeName");
        if name.is_empty() {
            errors.invalid(&at, name, "must be either unset or set to a non-empty string");
        } else {
            set.push("`nodeName`");
            errors.invalid_each(&at, name, names::is_dns1123_subdomain(name));
        }
    }
    if let Some(selector) = spec.part("nodeSelector") {
        set.push("`nodeSelector`");
        let at = SPEC.field("nodeSelector");
        node_selector(selector, false, &at, errors);
        let terms = selector.items("nodeSelectorTerms");
        if terms.len() != 1 {
            let shown = internal_json::compact("[]NodeSelectorTerm", selector.part("nodeSelectorTerms"));
            let detail = format!("{shown}: must have exactly one node selector term");
            errors.report(FieldErrorKind::Invalid, &at.field("nodeSelectorTerms"), None, detail);
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match spec.flag_if_set(field) {
            Some(true) => set.push(shown),
            Some(false) => errors.invalid(&SPEC.field(field), false, "must be either unset or set to true"),
            None => {}
        }
    }
    match set.len() {
        0 => errors.required(&SPEC, WORDS),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid(&SPEC, shown, format!("{WORDS}, but multiple fields are set"));
        }
    }
}

fn device_rules(
    device: &Value,
    old: Option<&Value>,
    per_device_nodes: bool,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let name = device.text("name");
    errors.invalid_each(&at.field("name"), name, names::is_dns1123_label(name));
    sizes(device, at, errors);
    let list = at.field("attributes");
    for (key, attribute) in device.entries("attributes") {
        qualified_name(key, &list, errors);
        attribute_rules(attribute, &list.key(&shortened(key)), errors);
    }
    if old.is_none_or(|old| !same(old.part("capacity"), device.part("capacity"))) {
        let list = at.field("capacity");
        for (key, entry) in device.entries("capacity") {
            qualified_name(key, &list, errors);
            let key = shortened(key);
            let here = list.key(&key);
            if device.flag("allowMultipleAllocations") {
                capacity::request_policy(entry, &here.field("requestPolicy"), errors);
            } else if entry.part("requestPolicy").is_some() {
                errors.forbidden(&here.field("requestPolicy"), "allowMultipleAllocations must be true");
            }
        }
    }
    if old.is_none_or(|old| !same(old.part("taints"), device.part("taints"))) {
        let taints = device.items("taints");
        let list = at.field("taints");
        if taints.len() > MAX_TAINTS {
            errors.too_many(&list, taints.len(), MAX_TAINTS);
        } else {
            for (i, entry) in taints.iter().enumerate() {
                taint(Some(entry), &list.index(i), errors);
            }
        }
    }
    let consumed = device.items("consumesCounters");
    if consumed.len() <= MAX_CONSUMED_SETS {
        let list = at.field("consumesCounters");
        for (i, set) in consumed.iter().enumerate() {
            few_counters(set, &list.index(i), errors);
        }
    }
    device_nodes(device, per_device_nodes, at, errors);
    binding_conditions(device, at, errors);
}

fn sizes(device: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let count = |field: &str| device.map_of(field).map_or(0, value::Map::len);
    let total = count("attributes") + count("capacity");
    if total > MAX_ATTRIBUTES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        errors.invalid(at, i64::try_from(total).unwrap_or(i64::MAX), detail);
    }
    let values: usize = device
        .entries("attributes")
        .map(|(_, attribute)| LISTS.iter().map(|list| attribute.items(list).len()).sum::<usize>().max(1))
        .sum();
    if values > MAX_ATTRIBUTE_VALUES {
        let detail = format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        errors.invalid(at, i64::try_from(values).unwrap_or(i64::MAX), detail);
    }
}

/// Shortens a long key for error paths by removing its middle.
fn shortened(key: &str) -> String {
    if key.len() <= MAX_KEY_SHOWN {
        return key.to_owned();
    }
    let shown_bytes = MAX_KEY_SHOWN - 3;
    let tail = key.ceil_char_boundary(key.len() - shown_bytes / 2);
    format!("{}...{}", first_bytes(key, shown_bytes.div_ceil(2)), key.get(tail..).unwrap_or_default())
}

fn device_nodes(device: &Value, per_device: bool, at: &At<'_>, errors: &mut FieldErrors) {
    const WORDS: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let is_set = ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| device.part(field).is_some());
    if !per_device {
        if is_set {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(at, Value::Null, detail);
        }
        return;
    }
    let mut set = Vec::new();
    if let Some(name) = device.text_if_set("nodeName") {
        if name.is_empty() {
            errors.invalid(&at.field("nodeName"), name, "must not be empty");
        } else {
            set.push("`nodeName`");
            errors.invalid_each(&at.field("nodeName"), name, names::is_dns1123_subdomain(name));
        }
    }
    if let Some(selector) = device.part("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(selector, false, &at.field("nodeSelector"), errors);
    }
    match device.flag_if_set("allNodes") {
        Some(true) => set.push("`allNodes`"),
        Some(false) => errors.invalid(&at.field("allNodes"), false, "must be either unset or set to true"),
        None => {}
    }
    match set.len() {
        0 => errors.required(at, WORDS),
        1 => {}
        _ => errors.invalid(at, format!("{{{}}}", set.join(", ")), WORDS),
    }
}

fn attribute_rules(attribute: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(text) = attribute.text_if_set("string") {
        text_value(text, &at.field("string"), errors);
    }
    if let Some(text) = attribute.text_if_set("version") {
        version_value(text, &at.field("version"), errors);
    }
    for field in LISTS {
        let Some(list) = attribute.part(field) else { continue };
        let here = at.field(field);
        let items = attribute.items(field);
        if items.is_empty() {
            errors.invalid(&here, list.clone(), "must not be empty if specified");
        }
        for (i, item) in items.iter().enumerate() {
            let text = item.as_str().unwrap_or_default();
            match field {
                "strings" => text_value(text, &here.index(i), errors),
                "versions" => version_value(text, &here.index(i), errors),
                _ => {}
            }
        }
    }
}

fn text_value(text: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if text.len() > MAX_ATTRIBUTE_LENGTH {
        errors.too_long(at, MAX_ATTRIBUTE_LENGTH);
    }
}

fn version_value(text: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if !is_semver(text) {
        errors.invalid(at, text, "must be a string compatible with semver.org spec 2.0.0");
    }
    text_value(text, at, errors);
}

/// The regular expression of semver.org. CEL's `semver` is another parser upstream (blang/semver), which limits numbers to 64 bits.
fn is_semver(text: &str) -> bool {
    let (core, build) = text.split_once('+').map_or((text, None), |(core, build)| (core, Some(build)));
    let (core, pre) = core.split_once('-').map_or((core, None), |(core, pre)| (core, Some(pre)));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let digits_only = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| {
            pre.split('.').all(|part| is_word(part) && (!digits_only(part) || is_number(part)))
        })
        && build.is_none_or(|build| build.split('.').all(is_word))
}

fn few_counters(set: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let count = set.map_of("counters").map_or(0, value::Map::len);
    if count > MAX_COUNTERS {
        errors.too_many(&at.field("counters"), count, MAX_COUNTERS);
    }
}
