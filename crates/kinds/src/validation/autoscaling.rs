//! Validation of the `autoscaling` group, in version v2.

use api::validation::fields::{At, Read, Report, supersede};
use api::validation::meta;
use api::{FieldErrors, gvk::GroupVersion, names, quantity::Quantity};
use value::Value;

use super::pod::resources;
use super::{ValidationContext, ValidationRules, optional_value, required_name};

pub(crate) const HORIZONTAL_POD_AUTOSCALER: ValidationRules =
    ValidationRules { create, update, update_status };

const SPEC: At<'static> = At::new("spec");
const MAX_PERIOD_SECONDS: i64 = 1800;
const MAX_WINDOW_SECONDS: i64 = 3600;

/// Strictness of checking the API version of a reference.
#[derive(Clone, Copy)]
struct ApiVersion {
    may_be_anything: bool,
    may_lack_group: bool,
}

fn create(object: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    spec(object.part("spec"), None, &mut errors);
    supersede(errors, declared(object))
}

fn update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    spec(new.part("spec"), Some(old), &mut errors);
    supersede(errors, declared(new))
}

fn update_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let at = At::new("status");
    let status = new.part("status");
    let list = at.field("conditions");
    for (i, condition) in status.items("conditions").iter().enumerate() {
        let at = list.index(i);
        errors.not_negative(&at.field("observedGeneration"), condition.number("observedGeneration"));
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        errors.not_negative(&at.field(field), status.number(field));
    }
    errors
}

/// Declarative validation, whose errors come after all others.
fn declared(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = object.part("spec");
    errors.not_negative(&SPEC.field("minReplicas"), spec.number("minReplicas"));
    let at = SPEC.field("maxReplicas");
    match spec.number("maxReplicas") {
        0 => errors.required(&at, ""),
        max if max < 0 => errors.invalid(&at, max, "must be greater than or equal to 1"),
        _ => {}
    }
    errors
}

fn spec(spec: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let (min, max) = (spec.number_if_set("minReplicas"), spec.number("maxReplicas"));
    if let Some(min) = min {
        errors.not_negative(&SPEC.field("minReplicas"), min);
    }
    let max_at = SPEC.field("maxReplicas");
    if max == 0 {
        errors.required(&max_at, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&max_at, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&max_at, max, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.part("scaleTargetRef");
    let same_kind = old.is_some_and(|old| {
        let old = old.part("spec").part("scaleTargetRef");
        old.text("apiVersion") == target.text("apiVersion") && old.text("kind") == target.text("kind")
    });
    let strictness = ApiVersion {
        may_be_anything: same_kind,
        may_lack_group: !same_kind && target.text("kind") == "ReplicationController",
    };
    reference(target, strictness, &SPEC.field("scaleTargetRef"), errors);
    metrics(spec, old, min, errors);
    if let Some(behavior) = spec.part("behavior") {
        let at = SPEC.field("behavior");
        for field in ["scaleUp", "scaleDown"] {
            if let Some(rules) = behavior.part(field) {
                scaling_rules(rules, &at.field(field), errors);
            }
        }
    }
}

fn reference(reference: Option<&Value>, strictness: ApiVersion, at: &At<'_>, errors: &mut FieldErrors) {
    for field in ["kind", "name"] {
        required_name(reference, field, names::is_path_segment_name, at, errors);
    }
    let version = reference.text("apiVersion");
    if let Err(why) = api_version(version, strictness) {
        errors.invalid(&at.field("apiVersion"), version, why);
    }
}

fn api_version(version: &str, strictness: ApiVersion) -> Result<(), String> {
    if strictness.may_be_anything {
        return Ok(());
    }
    // An empty string parses as no group and no version.
    let parsed = GroupVersion::parse(version)?;
    if parsed.group.is_empty() && !strictness.may_lack_group {
        return Err("apiVersion must specify API group".to_owned());
    }
    Ok(())
}

fn metrics(spec: Option<&Value>, old: Option<&Value>, min: Option<i64>, errors: &mut FieldErrors) {
    let mut strictness = ApiVersion { may_be_anything: false, may_lack_group: true };
    if let Some(old) = old {
        strictness.may_be_anything = old.part("spec").items("metrics").iter().any(|metric| {
            metric.text("type") == "Object"
                && metric.part("object").is_some_and(|object| {
                    let version = object.part("describedObject").text("apiVersion");
                    api_version(version, strictness).is_err()
                })
        });
    }
    let list = SPEC.field("metrics");
    for (i, metric) in spec.items("metrics").iter().enumerate() {
        self::metric(metric, strictness, &list.index(i), errors);
    }
    let counts_elsewhere =
        spec.items("metrics").iter().any(|metric| matches!(metric.text("type"), "Object" | "External"));
    if min == Some(0) && !counts_elsewhere {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&list, detail);
    }
}

fn metric(metric: &Value, strictness: ApiVersion, at: &At<'_>, errors: &mut FieldErrors) {
    const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    /// Sources in the order of checking.
    const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
    let kind = metric.text("type");
    let type_at = at.field("type");
    if kind.is_empty() {
        errors.required(&type_at, "must specify a metric source type");
    }
    let is_known = TYPES.contains(&kind);
    if !is_known {
        errors.not_supported(&type_at, kind, &TYPES);
    }
    let present: Vec<&str> = SOURCES.into_iter().filter(|field| metric.part(field).is_some()).collect();
    if let Some(first) = present.first()
        && let Some(source) = metric.part(first)
    {
        self::source(first, source, strictness, &at.field(first), errors);
    }
    let expected = SOURCES.into_iter().find(|field| field.eq_ignore_ascii_case(kind) && is_known);
    match expected {
        Some(field) => {
            if metric.part(field).is_none() {
                errors.required(&at.field(field), "must populate information for the given metric source");
            }
        }
        None => errors.not_supported(&type_at, kind, &TYPES),
    }
    if present.len() != 1 {
        let mut others: Vec<&str> = present.into_iter().filter(|field| Some(*field) != expected).collect();
        others.sort_unstable();
        for field in others {
            errors.forbidden(&at.field(field), "must populate the given metric source only");
        }
    }
}

fn source(field: &str, source: &Value, strictness: ApiVersion, at: &At<'_>, errors: &mut FieldErrors) {
    let target = source.part("target");
    let target_at = at.field("target");
    let is_set = |field: &str| target.part(field).is_some();
    match field {
        "object" => {
            reference(source.part("describedObject"), strictness, &at.field("describedObject"), errors);
            metric_name(source, at, errors);
            metric_target(target, &target_at, errors);
            if !is_set("value") && !is_set("averageValue") {
                let detail = "must set either a target value or averageValue";
                errors.required(&target_at.field("averageValue"), detail);
            }
        }
        "external" => {
            metric_name(source, at, errors);
            metric_target(target, &target_at, errors);
            match (is_set("value"), is_set("averageValue")) {
                (false, false) => {
                    let detail = "must set either a target value for metric or a per-pod target";
                    errors.required(&target_at.field("averageValue"), detail);
                }
                (true, true) => {
                    let detail = "may not set both a target value for metric and a per-pod target";
                    errors.forbidden(&target_at.field("value"), detail);
                }
                _ => {}
            }
        }
        "pods" => {
            metric_name(source, at, errors);
            metric_target(target, &target_at, errors);
            if !is_set("averageValue") {
                let detail = "must specify a positive target averageValue";
                errors.required(&target_at.field("averageValue"), detail);
            }
        }
        _ => resource_source(field, source, at, errors),
    }
}

fn resource_source(field: &str, source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let (name, container) = (source.text("name"), source.text("container"));
    let in_container = field == "containerResource";
    if name.is_empty() {
        errors.required(&at.field("name"), "must specify a resource name");
    } else if in_container {
        resources::container_resource_name(name, &at.field("name"), errors);
    }
    if in_container {
        if container.is_empty() {
            errors.required(&at.field("container"), "must specify a container");
        } else {
            errors.invalid_each(&at.field("container"), container, names::is_dns1123_label(container));
        }
    }
    let target = source.part("target");
    let at = at.field("target");
    metric_target(target, &at, errors);
    match (target.part("averageUtilization").is_some(), target.part("averageValue").is_some()) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(&at.field("averageUtilization"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(&at.field("averageValue"), detail);
        }
        _ => {}
    }
}

fn metric_name(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let name = source.part("metric").text("name");
    let at = at.field("metric.name");
    if name.is_empty() {
        errors.required(&at, "must specify a metric name");
    } else {
        errors.invalid_each(&at, name, names::is_path_segment_name(name));
    }
}

fn metric_target(target: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(&at.field("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&at.field("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let quantity = target.text_if_set(field).and_then(|text| Quantity::parse(text).ok());
        if let Some(quantity) = quantity.filter(|quantity| quantity.sign() <= 0) {
            errors.invalid(&at.field(field), quantity.canonical(), "must be positive");
        }
    }
    if let Some(utilization) = target.number_if_set("averageUtilization")
        && utilization < 1
    {
        errors.invalid(&at.field("averageUtilization"), utilization, "must be greater than 0");
    }
}

fn scaling_rules(rules: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const SELECT: [&str; 3] = ["Disabled", "Max", "Min"];
    const TYPES: [&str; 2] = ["Percent", "Pods"];
    const NOT_POSITIVE: &str = "must be greater than zero";
    if let Some(seconds) = rules.number_if_set("stabilizationWindowSeconds") {
        let at = at.field("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.invalid(&at, seconds, "must be greater than or equal to zero");
        }
        if seconds > MAX_WINDOW_SECONDS {
            errors.invalid(&at, seconds, format!("must be less than or equal to {MAX_WINDOW_SECONDS}"));
        }
    }
    optional_value(rules, "selectPolicy", &SELECT, at, errors);
    let list = at.field("policies");
    let policies = rules.items("policies");
    if policies.is_empty() {
        errors.required(&list, "must specify at least one Policy");
    }
    for (i, policy) in policies.iter().enumerate() {
        let at = list.index(i);
        let kind = policy.text("type");
        if !TYPES.contains(&kind) {
            errors.not_supported(&at.field("type"), kind, &TYPES);
        }
        for field in ["value", "periodSeconds"] {
            let number = policy.number(field);
            if number <= 0 {
                errors.invalid(&at.field(field), number, NOT_POSITIVE);
            }
        }
        let period = policy.number("periodSeconds");
        if period > MAX_PERIOD_SECONDS {
            let detail = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
            errors.invalid(&at.field("periodSeconds"), period, detail);
        }
    }
    let tolerance = rules.text_if_set("tolerance").and_then(|text| Quantity::parse(text).ok());
    if let Some(tolerance) = tolerance.filter(|tolerance| tolerance.sign() < 0) {
        errors.invalid(&at.field("tolerance"), tolerance.canonical(), api::validation::fields::NOT_NEGATIVE);
    }
}
