//! Validation of DeviceClass and DeviceTaintRule, and of the parts that claims, templates and slices share.
//!
//! kube-apiserver validates these kinds in two ways: hand-written rules, and declarative rules of its types, whose
//! errors come last. The declarative rules are in `resource_declared`; the rules here do not repeat them.

use std::collections::HashSet;

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, Read, Report, same};
use api::validation::meta;
use api::validation::repeated::Repeated;
use cel::device::{DeviceSelector, DeviceSelectorError};
use value::Value;

use super::pod::volume_sources::csi_driver_name;
use super::{ValidationRules, resource_declared as declared};

pub(crate) const DEVICE_CLASS: ValidationRules = ValidationRules {
    create: |class, _| {
        let mut errors = device_class(class, None);
        declared::class(class, None, &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = device_class(new, Some(old));
        declared::class(new, Some(old), &mut errors);
        errors
    },
    update_status: super::no_rules,
};
pub(crate) const DEVICE_TAINT_RULE: ValidationRules = ValidationRules {
    create: |rule, _| {
        let mut errors = meta::create(rule, false, names::name_is_dns_subdomain);
        taint_rule(rule, &mut errors);
        declared::taint_rule(rule, None, &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        taint_rule(new, &mut errors);
        declared::taint_rule(new, Some(old), &mut errors);
        errors
    },
    update_status: |new, old, _| {
        let mut errors = meta::update(new, old);
        let conditions = new.list_at(&["status", "conditions"]);
        let at = At::new("status.conditions");
        meta::conditions(conditions, &at, &mut errors);
        if conditions.len() > MAX_CONDITIONS {
            errors.too_many(&at, conditions.len(), MAX_CONDITIONS);
        }
        declared::taint_rule(new, Some(old), &mut errors);
        errors
    },
};

const SPEC: At<'static> = At::new("spec");
/// Maximum number of requests, constraints, configurations or selectors in one object.
pub(super) const MAX_PARTS: usize = 32;
/// Maximum number of conditions of a device or rule.
pub(super) const MAX_CONDITIONS: usize = 8;
/// Maximum length of the name of an attribute or capacity, without its domain.
pub(super) const MAX_ID: usize = 32;
/// Maximum size of a driver's opaque parameters, in bytes.
pub(super) const MAX_PARAMETERS: usize = 10 << 10;
/// Maximum length of a pool name.
pub(super) const MAX_POOL_NAME: usize = 253;
/// Maximum number of binding conditions of a device, and of its binding failure conditions.
pub(super) const MAX_BINDING_CONDITIONS: usize = 4;
const MAX_EXPRESSION: usize = 10 << 10;

fn device_class(class: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    if let Some(old) = old {
        errors.extend(meta::update(class, old));
    }
    // Declarative validation checks the format of the name.
    errors
        .retain(|error| error.field != "metadata.name" || error.kind != api::field::FieldErrorKind::Invalid);
    let spec = class.part("spec");
    let is_stored = |field: &str| old.is_some_and(|old| same(old.part("spec").part(field), spec.part(field)));
    selectors(spec.items("selectors"), is_stored("selectors"), &SPEC.field("selectors"), &mut errors);
    let configs = spec.items("config");
    let list = SPEC.field("config");
    if configs.len() <= MAX_PARTS {
        for (i, config) in configs.iter().enumerate() {
            configuration(config, is_stored("config"), &list.index(i), &mut errors);
        }
    }
    errors
}

/// Validates the name of an attribute or capacity, with or without a domain.
pub(super) fn qualified_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    match name.split_once('/') {
        None => identifier(name, at, errors),
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
                identifier(id, at, errors);
            }
        }
    }
}

/// Validates the name of an attribute without its domain.
pub(super) fn identifier(id: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if id.len() > MAX_ID {
        errors.too_long(at, MAX_ID);
    }
    errors.invalid_each(at, id, names::is_c_identifier(id));
}

/// Validates device selectors. Stored ones were compiled when they were new and are not compiled again.
pub(super) fn selectors(selectors: &[Value], is_stored: bool, at: &At<'_>, errors: &mut FieldErrors) {
    if selectors.len() > MAX_PARTS {
        return;
    }
    for (i, selector) in selectors.iter().enumerate() {
        let here = at.index(i);
        match selector.part("cel") {
            None => errors.required(&here.field("cel"), ""),
            Some(_) if is_stored => {}
            Some(cel) => expression(cel.text("expression"), &here.field("cel.expression"), errors),
        }
    }
}

fn expression(expression: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if expression.len() > MAX_EXPRESSION {
        errors.too_long(at, MAX_EXPRESSION);
        return;
    }
    match DeviceSelector::check(expression) {
        Ok(()) => {}
        Err(DeviceSelectorError::Invalid(detail)) => errors.invalid(at, expression, detail),
        Err(error @ DeviceSelectorError::TooComplex) => errors.forbidden(at, error.to_string()),
        Err(DeviceSelectorError::Internal(detail)) => errors.internal(at, detail),
    }
}

/// Validates the opaque configuration for a driver. Stored parameters have no size limit.
pub(super) fn configuration(config: &Value, is_stored: bool, at: &At<'_>, errors: &mut FieldErrors) {
    match config.part("opaque") {
        None => errors.required(&at.field("opaque"), ""),
        Some(opaque) => {
            let most = if is_stored { usize::MAX } else { MAX_PARAMETERS };
            raw(opaque.part("parameters"), most, &at.field("opaque.parameters"), errors);
        }
    }
}

/// Validates opaque data: a JSON object of at most `most` bytes.
pub(super) fn raw(data: Option<&Value>, most: usize, at: &At<'_>, errors: &mut FieldErrors) {
    match data {
        None => errors.required(at, ""),
        Some(data) if value::write::to_vec(data).len() > most => errors.too_long(at, most),
        Some(Value::Map(_)) => {}
        Some(_) => errors.invalid(at, "<value omitted>", "must be a valid JSON object"),
    }
}

/// Validates a pool name: DNS subdomains separated by slashes.
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

pub(super) fn tolerations(tolerations: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let here = at.index(i).field("value").to_string();
        let here = At::new(&here);
        let value = toleration.text("value");
        match toleration.text("operator") {
            "Exists" if !value.is_empty() => {
                errors.invalid(&here, value, "must be empty for operator `Exists`");
            }
            "Equal" => errors.invalid_each(&here, value, names::is_valid_label_value(value)),
            _ => {}
        }
    }
}

/// Validates a device taint, except its effect, which is subject to declarative validation.
pub(super) fn taint(taint: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    meta::label_name(taint.text("key"), &at.field("key"), errors);
    let value = taint.text("value");
    if !value.is_empty() {
        errors.invalid_each(&at.field("value"), value, names::is_valid_label_value(value));
    }
}

fn taint_rule(rule: &Value, errors: &mut FieldErrors) {
    let spec = rule.part("spec");
    if let Some(selector) = spec.part("deviceSelector") {
        let at = SPEC.field("deviceSelector");
        if let Some(driver) = selector.text_if_set("driver") {
            csi_driver_name(driver, &at.field("driver"), errors);
        }
        if let Some(pool) = selector.text_if_set("pool") {
            pool_name(pool, &at.field("pool"), errors);
        }
        if let Some(device) = selector.text_if_set("device") {
            errors.invalid_each(&at.field("device"), device, names::is_dns1123_label(device));
        }
    }
    taint(spec.part("taint"), &SPEC.field("taint"), errors);
}

/// Validates the binding conditions and binding failure conditions of a device: both lists or neither must be set.
/// Their maximum length is subject to declarative validation.
pub(super) fn binding_conditions(device: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let (wanted, failed) = ("bindingConditions", "bindingFailureConditions");
    let conditions: Vec<&str> = device.texts(wanted).collect();
    let failures: Vec<&str> = device.texts(failed).collect();
    let wanted_conditions: HashSet<&str> = conditions.iter().copied().collect();
    for (field, list) in [(wanted, &conditions), (failed, &failures)] {
        if list.len() <= MAX_BINDING_CONDITIONS {
            let here = at.field(field);
            for (i, condition) in list.iter().enumerate() {
                meta::label_name(condition, &here.index(i), errors);
            }
        }
    }
    for (field, list) in [(wanted, &conditions), (failed, &failures)] {
        let here = at.field(field);
        let repeated = Repeated::earlier(list);
        for (i, condition) in list.iter().enumerate() {
            if repeated.at(i) {
                errors.duplicate(&here.index(i), *condition);
            }
            if field == failed && wanted_conditions.contains(condition) {
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
            let shown = device.part(field).cloned().unwrap_or_default();
            errors.invalid(&at.field(field), shown, format!("{field} are required to use {other}"));
        }
    }
}
