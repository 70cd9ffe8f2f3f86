//! Validation of the `apps` group and of ReplicationController.

use api::validation::fields::{At, IMMUTABLE, NOT_NEGATIVE, Read, Report, same, supersede};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::label_match::{NotASelector, selects};
use super::pod::options::PodValidationOptions;
use super::template::template;
use super::{ValidationContext, ValidationRules, internal_json, label_match, no_rules};

pub(crate) const DEPLOYMENT: ValidationRules = ValidationRules {
    create: |object, context| workload_create(object, context, deployment_spec),
    update: |new, old, context| workload_update(new, old, context, deployment_spec),
    update_status: deployment_status,
};
pub(crate) const DAEMON_SET: ValidationRules = ValidationRules {
    create: |object, context| workload_create(object, context, daemon_set_spec),
    update: daemon_set_update,
    update_status: daemon_set_status,
};
pub(crate) const REPLICA_SET: ValidationRules = ValidationRules {
    create: |object, context| workload_create(object, context, replica_set_spec),
    update: |new, old, context| workload_update(new, old, context, replica_set_spec),
    update_status: replica_set_status,
};
pub(crate) const CONTROLLER_REVISION: ValidationRules =
    ValidationRules { create: revision_create, update: revision_update, update_status: no_rules };
pub(crate) const REPLICATION_CONTROLLER: ValidationRules = ValidationRules {
    create: replication_controller_create,
    update: replication_controller_update,
    update_status: replication_controller_status,
};

const SPEC: At<'static> = At::new("spec");
const STATUS: At<'static> = At::new("status");
pub(super) const TEMPLATE: At<'static> = At::new("spec.template");
const NO_MATCH: &str = "`selector` does not match template `labels`";

/// Rules for the spec of a workload: its own fields and its pod template.
type WorkloadSpecRule = fn(Option<&Value>, &PodValidationOptions, &mut FieldErrors);

fn workload_create(object: &Value, context: &ValidationContext, spec_rule: WorkloadSpecRule) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    spec_rule(object.part("spec"), &PodValidationOptions::for_template(None, context), &mut errors);
    errors
}

fn workload_update(
    new: &Value,
    old: &Value,
    context: &ValidationContext,
    spec_rule: WorkloadSpecRule,
) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (spec, old_spec) = (new.part("spec"), old.part("spec"));
    spec_rule(spec, &PodValidationOptions::for_template(old_spec.part("template"), context), &mut errors);
    selector_stays(spec, old_spec, &mut errors);
    errors
}

fn deployment_spec(spec: Option<&Value>, options: &PodValidationOptions, errors: &mut FieldErrors) {
    errors.not_negative(&SPEC.field("replicas"), spec.number("replicas"));
    required_selector(spec, "deployment", errors);
    replicated_template(spec, options, errors);
    deployment_strategy(spec.part("strategy"), &SPEC.field("strategy"), errors);
    let ready = spec.number("minReadySeconds");
    errors.not_negative(&SPEC.field("minReadySeconds"), ready);
    errors.not_negative(&SPEC.field("revisionHistoryLimit"), spec.number("revisionHistoryLimit"));
    if let Some(deadline) = spec.number_if_set("progressDeadlineSeconds") {
        let at = SPEC.field("progressDeadlineSeconds");
        errors.not_negative(&at, deadline);
        if deadline <= ready {
            errors.invalid(&at, deadline, "must be greater than minReadySeconds");
        }
    }
}

fn deployment_strategy(strategy: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.part("rollingUpdate");
    let rolling_at = at.field("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if rolling.is_some() {
                errors.forbidden(&rolling_at, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            let Some(rolling) = rolling else {
                errors.required(&rolling_at, "this should be defaulted and never be nil");
                return;
            };
            let (unavailable, surge) = (rolling.part("maxUnavailable"), rolling.part("maxSurge"));
            let unavailable_at = rolling_at.field("maxUnavailable");
            positive_count(unavailable, &unavailable_at, errors);
            positive_count(surge, &rolling_at.field("maxSurge"), errors);
            if count(unavailable) == 0 && count(surge) == 0 {
                let value = unavailable.cloned().unwrap_or_else(|| 0.into());
                errors.invalid(&unavailable_at, value, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(unavailable, &unavailable_at, errors);
        }
        _ => not_a_strategy("DeploymentStrategy", strategy, &["Recreate", "RollingUpdate"], at, errors),
    }
}

/// Reports an update strategy of unknown type; the error quotes the whole strategy.
fn not_a_strategy(
    kind: &str,
    strategy: Option<&Value>,
    known: &[&str],
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let quoted: Vec<String> = known.iter().map(|name| api::field::quote(name)).collect();
    let json = internal_json::compact(kind, strategy);
    let detail = format!("{json}: supported values: {}", quoted.join(", "));
    errors.report(api::field::FieldErrorKind::NotSupported, at, None, detail);
}

/// Validates a number or percentage of pods.
pub(super) fn positive_count(value: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match value.and_then(Value::as_str) {
        Some(text) => errors.invalid_each(at, text, names::is_valid_percent(text)),
        None => errors.not_negative(at, value.and_then(Value::as_int).unwrap_or_default()),
    }
}

/// Rejects percentages above 100%.
pub(super) fn at_most_all(value: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(text) = value.and_then(Value::as_str)
        && percent(text).is_some_and(|percent| percent > 100)
    {
        errors.invalid(at, text, "must not be greater than 100%");
    }
}

fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%').filter(|_| names::is_valid_percent(text).is_empty())?.parse().ok()
}

/// Number of a count or percentage; 0 if it is invalid.
pub(super) fn count(value: Option<&Value>) -> i64 {
    match value.and_then(Value::as_str) {
        Some(text) => percent(text).or_else(|| text.parse().ok()).unwrap_or_default(),
        None => value.and_then(Value::as_int).unwrap_or_default(),
    }
}

pub(super) fn required_selector(spec: Option<&Value>, kind: &str, errors: &mut FieldErrors) {
    let at = SPEC.field("selector");
    match spec.part("selector") {
        None => errors.required(&at, ""),
        Some(selector) => {
            meta::label_selector(Some(selector), false, &at, errors);
            not_empty(selector, kind, errors);
        }
    }
}

fn not_empty(selector: &Value, kind: &str, errors: &mut FieldErrors) {
    if label_match::is_empty(selector) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.invalid_json(&SPEC.field("selector"), "{}", &detail);
    }
}

pub(super) fn selector_stays(new: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    if !same(new.part("selector"), old.part("selector")) {
        let json = meta::label_selector_json(new.part("selector"));
        errors.invalid_json(&SPEC.field("selector"), &json, IMMUTABLE);
    }
}

fn template_labels(spec: Option<&Value>) -> Option<&Value> {
    spec.part("template").part("metadata").part("labels")
}

/// Reports labels of the template that the selector does not select. Fails without a report if the selector is invalid.
pub(super) fn template_is_selected(
    spec: Option<&Value>,
    errors: &mut FieldErrors,
) -> Result<(), NotASelector> {
    let labels = template_labels(spec);
    if !selects(spec.part("selector"), labels)? {
        errors.invalid(&TEMPLATE.field("metadata.labels"), labels.cloned().unwrap_or_default(), NO_MATCH);
    }
    Ok(())
}

/// Validates the template of a Deployment or ReplicaSet. Skips it if the selector is invalid.
fn replicated_template(spec: Option<&Value>, options: &PodValidationOptions, errors: &mut FieldErrors) {
    if template_is_selected(spec, errors).is_err() {
        let json = meta::label_selector_json(spec.part("selector"));
        errors.invalid_json(&SPEC.field("selector"), &json, "invalid label selector");
        return;
    }
    template(spec.part("template"), options, &TEMPLATE, errors);
    always_restarted(spec, "ReplicaSet", errors);
}

/// Requires `restartPolicy: Always`, and no active deadline.
pub(super) fn always_restarted(spec: Option<&Value>, kind: &str, errors: &mut FieldErrors) {
    let pod = spec.part("template").part("spec");
    let policy = pod.text("restartPolicy");
    if policy != "Always" {
        errors.not_supported(&TEMPLATE.field("spec.restartPolicy"), policy, &["Always"]);
    }
    if pod.part("activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&TEMPLATE.field("spec.activeDeadlineSeconds"), detail);
    }
}

fn deployment_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (status, old_status) = (new.part("status"), old.part("status"));
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    not_negative(status, &counts, &mut errors);
    at_most_replicas(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], &mut errors);
    available_at_most_ready(status, "readyReplicas", &mut errors);
    collisions_grow(status, old_status, &mut errors);
    errors
}

pub(super) fn not_negative(status: Option<&Value>, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields {
        errors.not_negative(&STATUS.field(field), status.number(field));
    }
}

pub(super) fn at_most_replicas(status: Option<&Value>, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields {
        let count = status.number(field);
        if count > status.number("replicas") {
            errors.invalid(&STATUS.field(field), count, "cannot be greater than status.replicas");
        }
    }
}

pub(super) fn available_at_most_ready(status: Option<&Value>, name: &str, errors: &mut FieldErrors) {
    let available = status.number("availableReplicas");
    if available > status.number("readyReplicas") {
        let detail = format!("cannot be greater than {name}");
        errors.invalid(&STATUS.field("availableReplicas"), available, detail);
    }
}

pub(super) fn collisions_grow(new: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let (new, old) = (new.number_if_set("collisionCount"), old.number_if_set("collisionCount"));
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        errors.invalid(&STATUS.field("collisionCount"), new.unwrap_or_default(), "cannot be decremented");
    }
}

fn replica_set_spec(spec: Option<&Value>, options: &PodValidationOptions, errors: &mut FieldErrors) {
    errors.not_negative(&SPEC.field("replicas"), spec.number("replicas"));
    errors.not_negative(&SPEC.field("minReadySeconds"), spec.number("minReadySeconds"));
    // kube-apiserver says "deployment" here too.
    required_selector(spec, "deployment", errors);
    replicated_template(spec, options, errors);
}

fn replica_set_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    replicas_status(new.part("status"), &mut errors);
    errors
}

/// Validates the status fields that ReplicaSet and ReplicationController share.
fn replicas_status(status: Option<&Value>, errors: &mut FieldErrors) {
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    not_negative(status, &counts, errors);
    at_most_replicas(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], errors);
    available_at_most_ready(status, "readyReplicas", errors);
}

fn daemon_set_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (spec, old_spec) = (new.part("spec"), old.part("spec"));
    selector_stays(spec, old_spec, &mut errors);
    let mut options = PodValidationOptions::for_template(old_spec.part("template"), context);
    options.invalid_selector_values |= meta::has_invalid_label_value(old_spec.part("selector"));
    daemon_set_spec(spec, &options, &mut errors);
    errors
}

fn daemon_set_spec(spec: Option<&Value>, options: &PodValidationOptions, errors: &mut FieldErrors) {
    let selector = spec.part("selector");
    meta::label_selector(selector, options.invalid_selector_values, &SPEC.field("selector"), errors);
    let labels = template_labels(spec);
    if let Ok(false) = selects(selector, labels) {
        errors.invalid(&TEMPLATE.field("metadata.labels"), labels.cloned().unwrap_or_default(), NO_MATCH);
    }
    if let Some(selector) = selector {
        not_empty(selector, "daemonset", errors);
    }
    template(spec.part("template"), options, &TEMPLATE, errors);
    always_restarted(spec, "DaemonSet", errors);
    errors.not_negative(&SPEC.field("minReadySeconds"), spec.number("minReadySeconds"));
    daemon_set_strategy(spec.part("updateStrategy"), &SPEC.field("updateStrategy"), errors);
    errors.not_negative(&SPEC.field("revisionHistoryLimit"), spec.number("revisionHistoryLimit"));
}

fn daemon_set_strategy(strategy: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = at.field("rollingUpdate");
            let Some(rolling) = strategy.part("rollingUpdate") else {
                errors.required(&at, "");
                return;
            };
            let (unavailable, surge) = (rolling.part("maxUnavailable"), rolling.part("maxSurge"));
            let (unavailable_at, surge_at) = (at.field("maxUnavailable"), at.field("maxSurge"));
            positive_count(unavailable, &unavailable_at, errors);
            positive_count(surge, &surge_at, errors);
            at_most_all(unavailable, &unavailable_at, errors);
            at_most_all(surge, &surge_at, errors);
            match (count(unavailable) != 0, count(surge) != 0) {
                (true, true) => {
                    let surge = surge.cloned().unwrap_or_else(|| 0.into());
                    errors.invalid(&surge_at, surge, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => errors.required(&unavailable_at, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => not_a_strategy("DaemonSetUpdateStrategy", strategy, &["RollingUpdate", "OnDelete"], at, errors),
    }
}

fn daemon_set_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (status, old_status) = (new.part("status"), old.part("status"));
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    not_negative(status, &counts, &mut errors);
    collisions_grow(status, old_status, &mut errors);
    errors
}

fn revision_create(object: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = revision(object);
    match object.part("data") {
        None => errors.required(&At::new("data"), "data is mandatory"),
        Some(Value::Map(_)) => {}
        Some(_) => errors.required(&At::new("data"), "data must be a valid JSON object"),
    }
    errors
}

fn revision(object: &Value) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    errors.not_negative(&At::new("revision"), object.number("revision"));
    errors
}

fn revision_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    errors.append(&mut revision(new));
    errors.immutable(&At::new("data"), new.part("data"), old.part("data"));
    errors
}

fn replication_controller_create(object: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create_without_name(object, true);
    replication_controller_spec(object, &PodValidationOptions::for_template(None, context), &mut errors);
    let mut declared = FieldErrors::new();
    let name = object.part("metadata").text("name");
    if !name.is_empty() {
        declared.invalid_each(&At::new("metadata.name"), name, names::is_dns1123_subdomain(name));
    }
    declared_of_replication_controller(object, &mut declared);
    supersede(errors, declared)
}

fn replication_controller_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    const NOT_CONVERTIBLE: &str = "non-convertible.kubernetes.io";
    let mut errors = meta::update(new, old);
    let options = PodValidationOptions::for_template(old.part("spec").part("template"), context);
    replication_controller_spec(new, &options, &mut errors);
    let mut declared = FieldErrors::new();
    declared_of_replication_controller(new, &mut declared);
    for (key, value) in old.part("metadata").text_entries("annotations") {
        let Some((prefix, broken)) = key.split_once('/') else { continue };
        if !prefix.starts_with(NOT_CONVERTIBLE) || broken.contains('/') {
            continue;
        }
        let (spec, old_spec) = (new.part("spec"), old.part("spec"));
        if !broken.contains("selector") {
            let kind = api::field::FieldErrorKind::NotFound;
            let detail = "unknown non-convertible field".to_owned();
            errors.report(kind, &At::new(broken), Some(value.into()), detail);
        } else if !same(spec.part("selector"), old_spec.part("selector")) {
            let selector = spec.part("selector").cloned().unwrap_or_default();
            errors.invalid(&SPEC.field("selector"), selector, "cannot update non-convertible selector");
        }
    }
    supersede(errors, declared)
}

/// Declarative validation, whose errors come after all others.
fn declared_of_replication_controller(object: &Value, errors: &mut FieldErrors) {
    let spec = object.part("spec");
    match spec.number_if_set("replicas") {
        None => errors.required(&SPEC.field("replicas"), ""),
        Some(replicas) if replicas < 0 => errors.invalid(&SPEC.field("replicas"), replicas, NOT_NEGATIVE),
        Some(_) => {}
    }
    errors.not_negative(&SPEC.field("minReadySeconds"), spec.number("minReadySeconds"));
}

fn replication_controller_spec(object: &Value, options: &PodValidationOptions, errors: &mut FieldErrors) {
    let spec = object.part("spec");
    errors.not_negative(&SPEC.field("minReadySeconds"), spec.number("minReadySeconds"));
    let has_selector = spec.entries("selector").next().is_some();
    if !has_selector {
        errors.required(&SPEC.field("selector"), "");
    }
    match spec.number_if_set("replicas") {
        None => errors.required(&SPEC.field("replicas"), ""),
        Some(replicas) => errors.not_negative(&SPEC.field("replicas"), replicas),
    }
    if spec.part("template").is_none() {
        errors.required(&TEMPLATE, "");
        return;
    }
    let labels = template_labels(spec);
    let selected = spec.text_entries("selector").all(|(key, value)| labels.text_if_set(key) == Some(value));
    if !selected {
        errors.invalid(&TEMPLATE.field("metadata.labels"), labels.cloned().unwrap_or_default(), NO_MATCH);
    }
    template(spec.part("template"), options, &TEMPLATE, errors);
    always_restarted(spec, "ReplicationController", errors);
}

fn replication_controller_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    replicas_status(new.part("status"), &mut errors);
    errors
}
