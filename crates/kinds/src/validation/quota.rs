//! Validation of LimitRange, ResourceQuota and resource names.

use std::collections::BTreeSet;

use api::names;
use api::pod_resources::{COMPUTE_RESOURCES, is_huge_page};
use api::quantity::Quantity;
use api::validation::fields::{At, IMMUTABLE, Read, Report};
use api::validation::meta;
use api::validation::repeated::Repeated;
use api::{FieldErrors, meta as object_meta};
use value::Value;

use super::pod::resources::{
    COUNTED_RESOURCES, container_resource_name, may_overcommit, resource_name, resource_quantity,
};
use super::{ValidationContext, ValidationRules, no_rules};

pub(crate) const LIMIT_RANGE: ValidationRules = ValidationRules {
    create: limit_range,
    update: |new, _, context| limit_range(new, context),
    update_status: no_rules,
};
pub(crate) const RESOURCE_QUOTA: ValidationRules =
    ValidationRules { create: quota, update: quota_update, update_status: quota_status_update };

const HARD: At<'static> = At::new("spec.hard");

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name.strip_prefix("requests.").unwrap_or(name))
}

fn is_standard_quota(name: &str) -> bool {
    COUNTED_RESOURCES.contains(&name)
        || COMPUTE_RESOURCES.contains(&name)
        || name == "requests.storage"
        || is_quota_huge_page(name)
}

fn quota_resource_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    resource_name(name, at, errors);
    if !name.contains('/') && !is_standard_quota(name) {
        errors.invalid(at, name, "must be a standard resource for quota");
    }
}

/// Validates the amount of a resource: not negative, and an integer if the resource is counted.
pub(super) fn resource_amounts(name: &str, amount: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if let Ok(amount) = Quantity::parse(amount) {
        resource_quantity(name, &amount, at, errors);
    }
}

fn limit_range(range: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(range, true, names::name_is_dns_subdomain);
    let limits = range.list_at(&["spec", "limits"]);
    let list = At::new("spec.limits");
    let repeated = Repeated::of_field(limits, "type");
    for (i, limit) in limits.iter().enumerate() {
        let at = list.index(i);
        let kind = limit.text("type");
        let wrong = names::is_qualified_name(kind);
        if !wrong.is_empty() {
            errors.invalid_each(&at.field("type"), kind, wrong);
        } else if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            errors.invalid(&at.field("type"), kind, "must be a standard limit type or fully qualified");
        }
        if repeated.at(i) {
            errors.duplicate(&at.field("type"), kind);
        }
        limit_item(limit, kind, &at, &mut errors);
    }
    errors
}

fn limit_item(limit: &Value, kind: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let rule: fn(&str, &At<'_>, &mut FieldErrors) = if matches!(kind, "Pod" | "Container") {
        container_resource_name
    } else {
        |name, at, errors| {
            resource_name(name, at, errors);
        }
    };
    let mut resources: BTreeSet<&str> = BTreeSet::new();
    for field in ["max", "min"] {
        let here = at.field(field);
        for (name, _) in limit.entries(field) {
            rule(name, &here.key(name), errors);
            resources.insert(name);
        }
    }
    for field in ["default", "defaultRequest"] {
        let here = at.field(field);
        if kind == "Pod" {
            if limit.map_of(field).is_some_and(|map| !map.is_empty()) {
                errors.forbidden(&here, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, _) in limit.entries(field) {
            rule(name, &here.key(name), errors);
            resources.insert(name);
        }
    }
    if kind == "PersistentVolumeClaim"
        && limit.part("min").part("storage").is_none()
        && limit.part("max").part("storage").is_none()
    {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&at.field("limits"), detail);
    }
    let here = at.field("maxLimitRequestRatio");
    for (name, _) in limit.entries("maxLimitRequestRatio") {
        rule(name, &here.key(name), errors);
        resources.insert(name);
    }
    for name in resources {
        bounds_agree(limit, kind, name, at, errors);
    }
}

fn bounds_agree(limit: &Value, kind: &str, name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let amount = |field: &str| Quantity::parse(limit.part(field).text_if_set(name)?).ok();
    let unless_pod = |field: &str| if kind == "Pod" { None } else { amount(field) };
    let (min, max) = (amount("min"), amount("max"));
    let (default, request) = (unless_pod("default"), unless_pod("defaultRequest"));
    let ratio = amount("maxLimitRequestRatio");
    let mut wrong = |field: &str, shown: &Quantity, detail: String| {
        let here = at.field(field);
        errors.invalid(&here.key(name), shown.to_string(), detail);
    };
    if let (Some(min), Some(max)) = (&min, &max)
        && min > max
    {
        wrong("min", min, format!("min value {min} is greater than max value {max}"));
    }
    if let (Some(request), Some(min)) = (&request, &min)
        && min > request
    {
        wrong(
            "defaultRequest",
            request,
            format!("min value {min} is greater than default request value {request}"),
        );
    }
    if let (Some(request), Some(max)) = (&request, &max)
        && request > max
    {
        wrong(
            "defaultRequest",
            request,
            format!("default request value {request} is greater than max value {max}"),
        );
    }
    if let (Some(request), Some(default)) = (&request, &default)
        && request > default
    {
        let detail = format!("default request value {request} is greater than default limit value {default}");
        wrong("defaultRequest", request, detail);
    }
    if let (Some(default), Some(min)) = (&default, &min)
        && min > default
    {
        wrong("default", min, format!("min value {min} is greater than default value {default}"));
    }
    if let (Some(default), Some(max)) = (&default, &max)
        && default > max
    {
        wrong("default", max, format!("default value {default} is greater than max value {max}"));
    }
    if let Some(ratio) = &ratio {
        if ratio.cmp_i64(1).is_lt() {
            wrong("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            let most = max.as_approximate_f64() / min.as_approximate_f64();
            if ratio.as_approximate_f64() > most {
                let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
                wrong("maxLimitRequestRatio", ratio, detail);
            }
        }
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && !may_overcommit(name)
        && default != request
    {
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {name}");
        wrong("defaultRequest", request, detail);
    }
}

fn quota(quota: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(quota, true, names::name_is_dns_subdomain);
    quota_spec(quota, &mut errors);
    quota_status(quota, &mut errors);
    errors
}

fn quota_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    quota_spec(new, &mut errors);
    let scopes = |quota: &Value| -> BTreeSet<String> {
        quota.part("spec").texts("scopes").map(str::to_owned).collect()
    };
    if scopes(new) != scopes(old) {
        let shown = new.at(&["spec", "scopes"]).cloned().unwrap_or_default();
        errors.invalid(&At::new("spec.scopes"), shown, IMMUTABLE);
    }
    errors
}

fn quota_status_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    if object_meta::resource_version(new).is_empty() {
        errors.required(&At::new("resourceVersion"), "");
    }
    quota_status(new, &mut errors);
    errors
}

fn quota_status(quota: &Value, errors: &mut FieldErrors) {
    let status = At::new("status");
    for field in ["hard", "used"] {
        let at = status.field(field);
        amounts(quota.part("status"), field, &at, errors);
    }
}

fn amounts(holder: Option<&Value>, field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    for (name, amount) in holder.text_entries(field) {
        quota_resource_name(name, &at.key(name), errors);
        resource_amounts(name, amount, &at.key(name), errors);
    }
}

fn quota_spec(quota: &Value, errors: &mut FieldErrors) {
    let spec = quota.part("spec");
    amounts(spec, "hard", &HARD, errors);
    let misapplied = misapplied_scopes(spec);
    let shown_scopes = spec.part("scopes").cloned().unwrap_or_default();

    let at = At::new("spec.scopes");
    let scopes: Vec<&str> = spec.texts("scopes").collect();
    // Every scope has the same errors, which quote the whole list: each is reported once, in the order of the first ones.
    let (mut is_unsupported, mut is_misapplied) = (false, false);
    for scope in &scopes {
        if !is_unsupported && !is_scope(scope) {
            is_unsupported = true;
            errors.invalid(&at, shown_scopes.clone(), "unsupported scope");
        }
        if !is_misapplied && misapplied.contains(scope) {
            is_misapplied = true;
            errors.invalid(&at, shown_scopes.clone(), "unsupported scope applied to resource");
        }
    }
    conflicting(&scopes, &shown_scopes, &at, errors);

    let Some(selector) = spec.part("scopeSelector") else { return };
    let at = At::new("spec.scopeSelector.matchExpressions");
    let requirements = selector.items("matchExpressions");
    let mut is_misapplied = false;
    for requirement in requirements {
        let scope = requirement.text("scopeName");
        if !is_scope(scope) {
            errors.invalid(&at.field("scopeName"), scope, "unsupported scope");
        }
        if !is_misapplied && misapplied.contains(scope) {
            is_misapplied = true;
            let shown = super::internal_json::compact("ScopeSelector", Some(selector));
            let detail = format!("{shown}: unsupported scope applied to resource");
            errors.report(api::field::FieldErrorKind::Invalid, &at, None, detail);
        }
        scope_requirement(requirement, scope, &at, errors);
    }
    let scopes: Vec<&str> = requirements.iter().map(|requirement| requirement.text("scopeName")).collect();
    conflicting(&scopes, &shown_scopes, &at, errors);
}

fn scope_requirement(requirement: &Value, scope: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let operator = requirement.text("operator");
    let only_exists = matches!(
        scope,
        "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
    );
    if only_exists && operator != "Exists" {
        errors.invalid(
            &at.field("operator"),
            operator,
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
             ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity",
        );
    }
    let values = requirement.items("values");
    match operator {
        "In" | "NotIn" => {
            if values.is_empty() {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&at.field("values"), detail);
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&at.field("values"), Value::List(values.to_vec()), detail);
            }
        }
        other => errors.invalid(&at.field("operator"), other, "not a valid selector operator"),
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

fn is_scope(scope: &str) -> bool {
    SCOPES.contains(&scope)
}

/// The scopes with which a quota cannot limit all of the resources in `hard`.
fn misapplied_scopes(spec: Option<&Value>) -> BTreeSet<&'static str> {
    let standard: Vec<&str> =
        spec.entries("hard").map(|(name, _)| name).filter(|name| is_standard_quota(name)).collect();
    let is_misapplied = |scope: &&str| standard.iter().any(|resource| !limits(scope, resource));
    SCOPES.into_iter().filter(is_misapplied).collect()
}

/// Whether a quota with a scope can limit a resource.
fn limits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => matches!(
            resource,
            "pods" | "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
        ),
    }
}

fn conflicting(scopes: &[&str], shown: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(at, shown.clone(), "conflicting scopes");
        }
    }
}
