//! ResourceSlice.

use api::FieldErrors;
use api::names;
use value::Value;

use super::fields::{At, Read, Report, same};
use super::pod_scheduling::node_selector;
use super::pod_volumes::csi_driver_name;
use super::resource::{pool_name, qualified_name, taint};
use super::{Rules, meta, no_rules};

pub(super) const SLICE: Rules = Rules {
    create: |slice, _| {
        let mut errors = meta::create(slice, false, names::name_is_dns_subdomain);
        spec_rules(slice.part("spec"), None, &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        spec_rules(new.part("spec"), old.part("spec"), &mut errors);
        errors
    },
    update_status: no_rules,
};

const SPEC: At<'static> = At::new("spec");
const MAX_DEVICES: usize = 128;
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMED_SETS: usize = 2;
const MAX_ATTRIBUTES: usize = 32;
const MAX_TAINTS: usize = 16;
const MAX_ATTRIBUTE_LENGTH: usize = 64;
const MAX_BINDING_CONDITIONS: usize = 4;

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
        errors.immutable(&at.field("name"), pool.part("name"), name);
        errors.immutable(&SPEC.field("driver"), spec.part("driver"), old.part("driver"));
        errors.immutable(&SPEC.field("nodeName"), spec.part("nodeName"), old.part("nodeName"));
    }
    node_choice(spec, errors);
    if spec.part("sharedCounters").is_some() && spec.part("devices").is_some() {
        errors.invalid(&SPEC, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = spec.items("devices");
    let advanced = devices
        .iter()
        .any(|device| !device.items("taints").is_empty() || !device.items("consumesCounters").is_empty());
    let most = if advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let list = SPEC.field("devices");
    if devices.len() > most {
        errors.too_many(&list, devices.len(), most);
    }
    for (i, device) in devices.iter().enumerate() {
        let former = old.items("devices").iter().find(|former| former.text("name") == device.text("name"));
        let at = list.index(i);
        device_rules(device, former, spec.flag("perDeviceNodeSelection"), &at, errors);
    }
    for (i, device) in devices.iter().enumerate() {
        if devices.iter().take(i).any(|earlier| earlier.text("name") == device.text("name")) {
            errors.duplicate(&list.index(i), device.text("name"));
        }
    }
    for (i, device) in devices.iter().enumerate() {
        let at = list.index(i);
        let attributes = at.field("attributes");
        for (key, attribute) in device.entries("attributes") {
            one_value(attribute, &attributes.key(key), errors);
        }
    }
    let sets = spec.items("sharedCounters");
    let list = SPEC.field("sharedCounters");
    if sets.len() > MAX_COUNTER_SETS {
        errors.too_many(&list, sets.len(), MAX_COUNTER_SETS);
    }
    for (i, set) in sets.iter().enumerate() {
        let at = list.index(i);
        counters(set, "name", &at, errors);
        if sets.iter().take(i).any(|earlier| earlier.text("name") == set.text("name")) {
            errors.duplicate(&at, set.text("name"));
        }
    }
}

/// Which nodes can reach the devices: said in exactly one way.
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
            let shown =
                super::internal_json::compact("[]NodeSelectorTerm", selector.part("nodeSelectorTerms"));
            let detail = format!("{shown}: must have exactly one node selector term");
            errors.report(api::field::FieldErrorKind::Invalid, &at.field("nodeSelectorTerms"), None, detail);
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
    let count = |field: &str| device.map_of(field).map_or(0, value::Map::len);
    let total = count("attributes") + count("capacity");
    if total > MAX_ATTRIBUTES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        errors.invalid(at, i64::try_from(total).unwrap_or(i64::MAX), detail);
    }
    let list = at.field("attributes");
    for (key, attribute) in device.entries("attributes") {
        qualified_name(key, &list.key(key), errors);
        attribute_rules(attribute, &list.key(key), errors);
    }
    if old.is_none_or(|old| !same(old.part("capacity"), device.part("capacity"))) {
        let list = at.field("capacity");
        for (key, capacity) in device.entries("capacity") {
            let here = list.key(key);
            qualified_name(key, &here, errors);
            if capacity.part("requestPolicy").is_some() && !device.flag("allowMultipleAllocations") {
                errors.forbidden(&here.field("requestPolicy"), "allowMultipleAllocations must be true");
            }
        }
    }
    if old.is_none_or(|old| !same(old.part("taints"), device.part("taints"))) {
        let taints = device.items("taints");
        let list = at.field("taints");
        if taints.len() > MAX_TAINTS {
            errors.too_many(&list, taints.len(), MAX_TAINTS);
        }
        for (i, entry) in taints.iter().enumerate() {
            taint(Some(entry), &list.index(i), errors);
        }
    }
    let consumed = device.items("consumesCounters");
    let list = at.field("consumesCounters");
    if consumed.len() > MAX_CONSUMED_SETS {
        errors.too_many(&list, consumed.len(), MAX_CONSUMED_SETS);
    }
    for (i, set) in consumed.iter().enumerate() {
        let here = list.index(i);
        counters(set, "counterSet", &here, errors);
        if consumed.iter().take(i).any(|earlier| earlier.text("counterSet") == set.text("counterSet")) {
            errors.duplicate(&here, set.text("counterSet"));
        }
    }
    device_nodes(device, per_device_nodes, at, errors);
    for field in ["bindingConditions", "bindingFailureConditions"] {
        let conditions: Vec<&str> = device.texts(field).collect();
        let list = at.field(field);
        if conditions.len() > MAX_BINDING_CONDITIONS {
            errors.too_many(&list, conditions.len(), MAX_BINDING_CONDITIONS);
        }
        for (i, condition) in conditions.iter().enumerate() {
            errors.invalid_each(&list.index(i), condition, names::is_qualified_name(condition));
        }
    }
    binding_conditions(device, at, errors);
}

/// What must be true of a device before pods use it, and what ends the wait: both lists or neither.
fn binding_conditions(device: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let (wanted, failed) = ("bindingConditions", "bindingFailureConditions");
    let conditions: Vec<&str> = device.texts(wanted).collect();
    let failures: Vec<&str> = device.texts(failed).collect();
    for (field, list) in [(wanted, &conditions), (failed, &failures)] {
        let here = at.field(field);
        for (i, condition) in list.iter().enumerate() {
            if list.iter().take(i).any(|earlier| earlier == condition) {
                errors.duplicate(&here.index(i), *condition);
            }
            if field == failed && conditions.contains(condition) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(&here.index(i), *condition, detail);
            }
        }
    }
    for (field, other, missing) in [
        (wanted, failed, conditions.is_empty() && !failures.is_empty()),
        (failed, wanted, failures.is_empty() && !conditions.is_empty()),
    ] {
        if missing {
            errors.invalid(&at.field(field), Value::Null, format!("{field} are required to use {other}"));
        }
    }
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
    for field in ["string", "version"] {
        let Some(text) = attribute.text_if_set(field) else { continue };
        if field == "version" && !is_semver(text) {
            errors.invalid(&at.field(field), text, "must be a string compatible with semver.org spec 2.0.0");
        }
        if text.len() > MAX_ATTRIBUTE_LENGTH {
            errors.too_long(&at.field(field), MAX_ATTRIBUTE_LENGTH);
        }
    }
}

/// An attribute has exactly one value; the rule is declared, so its errors come after the others.
fn one_value(attribute: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let set: Vec<&str> = ["int", "bool", "string", "version"]
        .into_iter()
        .filter(|field| attribute.part(field).is_some())
        .collect();
    let members = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`";
    match set.len() {
        0 => errors.invalid(at, "", format!("must specify one of: {members}")),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid(at, shown, format!("must specify exactly one of: {members}"));
        }
    }
}

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

fn counters(set: &Value, name_field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let name = set.text(name_field);
    if name.is_empty() {
        errors.required(&at.field(name_field), "");
    } else {
        errors.invalid_each(&at.field(name_field), name, names::is_dns1123_label(name));
    }
    let list = at.field("counters");
    let count = set.map_of("counters").map_or(0, value::Map::len);
    if count == 0 {
        errors.required(&list, "");
    } else if count > MAX_COUNTERS {
        errors.too_many(&list, count, MAX_COUNTERS);
    }
    for (key, _) in set.entries("counters") {
        errors.invalid_each(&list, key, names::is_dns1123_label(key));
    }
}
