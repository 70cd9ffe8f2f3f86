//! resource.k8s.io: DeviceClass and DeviceTaintRule, and the parts claims, templates and slices share.

use api::FieldErrors;
use api::names;
use value::Value;

use super::fields::{At, Read, Report};
use super::pod_volumes::csi_driver_name;
use super::{Rules, meta};

pub(super) const DEVICE_CLASS: Rules = Rules {
    create: |class, _| device_class(class),
    update: |new, old, _| {
        let mut errors = device_class(new);
        errors.extend(meta::update(new, old));
        errors
    },
    update_status: super::no_rules,
};
pub(super) const DEVICE_TAINT_RULE: Rules = Rules {
    create: |rule, _| taint_rule(rule),
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        errors.extend(taint_rule(new));
        errors
    },
    update_status: |new, old, _| {
        let mut errors = meta::update(new, old);
        let conditions = new.list_at(&["status", "conditions"]);
        let at = At::new("status.conditions");
        if conditions.len() > MAX_CONDITIONS {
            errors.too_many(&at, conditions.len(), MAX_CONDITIONS);
        }
        meta::conditions(conditions, &at, &mut errors);
        errors
    },
};

const SPEC: At<'static> = At::new("spec");
/// As many requests, constraints, configurations or selectors as one object may have.
pub(super) const MAX_PARTS: usize = 32;
const MAX_EXPRESSION: usize = 10 << 10;
const MAX_PARAMETERS: usize = 10 << 10;
const MAX_POOL_NAME: usize = 253;
const MAX_TOLERATIONS: usize = 16;
const MAX_CONDITIONS: usize = 8;
const MAX_ID: usize = 32;

fn device_class(class: &Value) -> FieldErrors {
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    let spec = class.part("spec");
    selectors(spec.items("selectors"), &SPEC.field("selectors"), &mut errors);
    let list = SPEC.field("config");
    let configs = spec.items("config");
    if configs.len() > MAX_PARTS {
        errors.too_many(&list, configs.len(), MAX_PARTS);
    }
    for (i, config) in configs.iter().enumerate() {
        configuration(config, &list.index(i), &mut errors);
    }
    if let Some(name) = spec.text_if_set("extendedResourceName") {
        extended_name(name, &SPEC.field("extendedResourceName"), &mut errors);
    }
    errors
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
    errors.invalid_each(at, name, names::is_qualified_name(&format!("requests.{name}")));
}

/// The name of an attribute or capacity, with or without the domain of who defines it.
pub(super) fn qualified_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let identifier = |id: &str, errors: &mut FieldErrors| {
        if id.len() > MAX_ID {
            errors.too_long(at, MAX_ID);
        }
        errors.invalid_each(at, id, names::is_c_identifier(id));
    };
    match name.split_once('/') {
        None => identifier(name, errors),
        Some((_, id)) if id.contains('/') => {}
        Some((domain, id)) => {
            if domain.is_empty() {
                errors.invalid(at, "", "the domain must not be empty");
            } else {
                csi_driver_name(domain, at, errors);
            }
            if id.is_empty() {
                errors.invalid(at, "", "the name must not be empty");
            } else {
                identifier(id, errors);
            }
        }
    }
}

/// Selectors: their shape. Whether expressions compile is checked by the engine that runs them.
pub(super) fn selectors(selectors: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    if selectors.len() > MAX_PARTS {
        errors.too_many(at, selectors.len(), MAX_PARTS);
    }
    for (i, selector) in selectors.iter().enumerate() {
        let here = at.index(i);
        match selector.part("cel") {
            None => errors.required(&here.field("cel"), ""),
            Some(cel) if cel.text("expression").len() > MAX_EXPRESSION => {
                errors.too_long(&here.field("cel.expression"), MAX_EXPRESSION);
            }
            Some(_) => {}
        }
    }
}

/// What a driver is told about its devices.
pub(super) fn configuration(config: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let here = at.field("opaque");
    let Some(opaque) = config.part("opaque") else {
        errors.required(&here, "");
        return;
    };
    let at = here.field("parameters");
    match opaque.part("parameters") {
        None => errors.required(&at, ""),
        Some(parameters) => {
            let size = value::write::to_vec(parameters).len();
            if size > MAX_PARAMETERS {
                errors.too_long(&at, MAX_PARAMETERS);
            } else if parameters.as_map().is_none() {
                errors.invalid(
                    &at,
                    "<value omitted>",
                    "error parsing data as JSON object: expected an object",
                );
            }
        }
    }
    // Kubernetes reports the driver last, because that rule is declared.
    csi_driver_name(opaque.text("driver"), &here.field("driver"), errors);
}

/// The name of a pool: names of subdomains, with slashes between them.
pub(super) fn pool_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    if name.len() > MAX_POOL_NAME {
        errors.too_long(at, MAX_POOL_NAME);
    }
    for part in name.split('/') {
        errors.invalid_each(at, part, names::is_dns1123_subdomain(part));
    }
}

/// Tolerations of device taints.
pub(super) fn tolerations(tolerations: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    if tolerations.len() > MAX_TOLERATIONS {
        errors.too_many(at, tolerations.len(), MAX_TOLERATIONS);
    }
    for (i, toleration) in tolerations.iter().enumerate() {
        let here = at.index(i);
        let (key, value) = (toleration.text("key"), toleration.text("value"));
        if !key.is_empty() {
            meta::label_name(key, &here.field("key"), errors);
        }
        match toleration.text("operator") {
            "Exists" => {
                if !value.is_empty() {
                    errors.invalid(&here.field("value"), value, "must be empty for operator `Exists`");
                }
            }
            "Equal" => errors.invalid_each(&here.field("value"), value, names::is_valid_label_value(value)),
            "" => errors.required(&here.field("operator"), ""),
            other => errors.not_supported(&here.field("operator"), other, &["Equal", "Exists"]),
        }
        taint_effect(toleration.text("effect"), true, &here.field("effect"), errors);
    }
}

fn taint_effect(effect: &str, may_be_empty: bool, at: &At<'_>, errors: &mut FieldErrors) {
    const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
    if effect.is_empty() {
        if !may_be_empty {
            errors.required(at, "");
        }
    } else if !EFFECTS.contains(&effect) {
        errors.not_supported(at, effect, &EFFECTS);
    }
}

/// A taint of a device.
pub(super) fn taint(taint: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    meta::label_name(taint.text("key"), &at.field("key"), errors);
    let value = taint.text("value");
    if !value.is_empty() {
        errors.invalid_each(&at.field("value"), value, names::is_valid_label_value(value));
    }
    taint_effect(taint.text("effect"), false, &at.field("effect"), errors);
}

fn taint_rule(rule: &Value) -> FieldErrors {
    let mut errors = meta::create(rule, false, names::name_is_dns_subdomain);
    let spec = rule.part("spec");
    if let Some(selector) = spec.part("deviceSelector") {
        let at = SPEC.field("deviceSelector");
        if let Some(driver) = selector.text_if_set("driver") {
            csi_driver_name(driver, &at.field("driver"), &mut errors);
        }
        if let Some(pool) = selector.text_if_set("pool") {
            pool_name(pool, &at.field("pool"), &mut errors);
        }
        if let Some(device) = selector.text_if_set("device") {
            errors.invalid_each(&at.field("device"), device, names::is_dns1123_label(device));
        }
    }
    taint(spec.part("taint"), &SPEC.field("taint"), &mut errors);
    errors
}
