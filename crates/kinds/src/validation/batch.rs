//! Validation of the `batch` group: Job and CronJob.

use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use api::{FieldErrors, field::FieldErrorKind, names};
use value::{Map, Value};

use super::label_match::selects;
use super::pod::options::PodValidationOptions;
use super::template::template;
use super::{ValidationContext, ValidationRules, cron, internal_json, job_status};

pub(crate) const JOB: ValidationRules =
    ValidationRules { create: job_create, update: job_update, update_status: job_status::update };
pub(crate) const CRON_JOB: ValidationRules =
    ValidationRules { create: cron_job_create, update: cron_job_update, update_status: super::no_rules };

const SPEC: At<'static> = At::new("spec");
const MAX_INDEXED: i64 = 100_000;
const MAX_WHEN_MANY_COMPLETIONS: i64 = 10_000;
const MAX_FAILURE_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_CONDITION_PATTERNS: usize = 20;
const MAX_MANAGED_BY: usize = 63;
const MAX_SUCCESS_RULES: usize = 20;
const MAX_SUCCEEDED_INDEXES: usize = 64 << 10;
const MAX_CRON_JOB_NAME: usize = 52;

pub(crate) const LEGACY_UID_LABEL: &str = "controller-uid";
pub(crate) const LEGACY_NAME_LABEL: &str = "job-name";
pub(crate) const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
pub(crate) const NAME_LABEL: &str = "batch.kubernetes.io/job-name";

fn job_create(job: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(job, true, names::name_is_dns_subdomain);
    generated_selector(job, &mut errors);
    let options = PodValidationOptions::for_template(None, context);
    selecting_spec(job.part("spec"), &options, &mut errors);
    name_allows_completions(job, &mut errors);
    errors
}

fn job_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (spec, old_spec) = (new.part("spec"), old.part("spec"));
    let mut options = PodValidationOptions::for_template(old_spec.part("template"), context);
    options.invalid_selector_values |= meta::has_invalid_label_value(old_spec.part("selector"));
    selecting_spec(spec, &options, &mut errors);
    completions_update(spec, old_spec, &mut errors);
    if !same(spec.part("selector"), old_spec.part("selector")) {
        let json = meta::label_selector_json(spec.part("selector"));
        errors.invalid_json(&SPEC.field("selector"), &json, IMMUTABLE);
    }
    template_update(spec, old, &mut errors);
    for (field, kind) in [
        ("completionMode", "*text"),
        ("podFailurePolicy", "*PodFailurePolicy"),
        ("backoffLimitPerIndex", "*number"),
        ("managedBy", "*text"),
        ("successPolicy", "*SuccessPolicy"),
    ] {
        if !same(spec.part(field), old_spec.part(field)) {
            let json = internal_json::compact(kind, spec.part(field));
            errors.invalid_json(&SPEC.field(field), &json, IMMUTABLE);
        }
    }
    name_allows_completions(new, &mut errors);
    errors
}

/// Validates the generated selector and labels, which match exactly the pods of the job.
fn generated_selector(job: &Value, errors: &mut FieldErrors) {
    let spec = job.part("spec");
    if spec.flag("manualSelector") {
        return;
    }
    let Some(selector) = spec.part("selector") else { return };
    let metadata = job.part("metadata");
    let (uid, name) = (metadata.text("uid"), metadata.text("name"));
    if uid.is_empty() {
        errors.required(&At::new("metadata.uid"), "");
    }
    let expected = [(LEGACY_UID_LABEL, uid), (LEGACY_NAME_LABEL, name), (UID_LABEL, uid), (NAME_LABEL, name)];
    let labels = spec.part("template").part("metadata").part("labels");
    let at = SPEC.field("template.metadata.labels");
    for (key, value) in expected {
        let detail = format!("must be '{value}'");
        match labels.text_if_set(key) {
            None => errors.required(&at.key(key), detail),
            Some(label) if label != value => {
                errors.invalid(&at.key(key), labels.cloned().unwrap_or_default(), detail);
            }
            Some(_) => {}
        }
    }
    if let Ok(false) = selects(Some(selector), Some(&Value::map(expected))) {
        let json = meta::label_selector_json(Some(selector));
        errors.invalid_json(&SPEC.field("selector"), &json, "`selector` not auto-generated");
    }
}

/// Checks that the pod names of an indexed job, made of its name and an index, are valid.
fn name_allows_completions(job: &Value, errors: &mut FieldErrors) {
    let spec = job.part("spec");
    let completions = spec.number("completions");
    if spec.text("completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.part("metadata").text("name");
    let host = format!("{name}-{}", completions - 1);
    if !names::is_dns1123_label(&host).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {host}");
        errors.invalid(&At::new("metadata.name"), name, detail);
    }
}

fn selecting_spec(spec: Option<&Value>, options: &PodValidationOptions, errors: &mut FieldErrors) {
    job_spec(spec, options, &SPEC, errors);
    let at = SPEC.field("selector");
    let selector = spec.part("selector");
    if selector.is_none() {
        errors.required(&at, "");
    }
    meta::label_selector(selector, options.invalid_selector_values, &at, errors);
    let labels = spec.part("template").part("metadata").part("labels");
    if let Ok(false) = selects(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        let labels = labels.cloned().unwrap_or_default();
        errors.invalid(&SPEC.field("template.metadata.labels"), labels, detail);
    }
}

/// Validates the fields that Job and CronJob's job template share.
fn job_spec(spec: Option<&Value>, options: &PodValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(&at.field(field), spec.number(field));
    }
    if spec.part("maxFailedIndexes").is_some() && spec.part("backoffLimitPerIndex").is_none() {
        errors.required(&at.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.text_if_set("managedBy") {
        let at = at.field("managedBy");
        let path = value::Path::root().field(at.to_string());
        errors.append(&mut names::is_domain_prefixed_path(&path, manager));
        if manager.len() > MAX_MANAGED_BY {
            errors.too_long(&at, MAX_MANAGED_BY);
        }
    }
    completion_mode(spec, at, errors);
    if let Some(policy) = spec.part("podFailurePolicy") {
        failure_policy(policy, spec, &at.field("podFailurePolicy"), errors);
    }
    if let Some(policy) = spec.part("successPolicy") {
        let at = at.field("successPolicy");
        if spec.text("completionMode") == "Indexed" {
            success_policy(policy, spec, &at, errors);
        } else {
            let json = internal_json::compact("SuccessPolicy", Some(policy));
            errors.invalid_json(&at, &json, "requires indexed completion mode");
        }
    }
    replacement_policy(spec, &at.field("podReplacementPolicy"), errors);
    template(spec.part("template"), options, &at.field("template"), errors);
    restart_policy(spec, &at.field("template.spec.restartPolicy"), errors);
}

fn completion_mode(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let mode = spec.text_if_set("completionMode");
    if let Some(mode) = mode.filter(|mode| !matches!(*mode, "NonIndexed" | "Indexed")) {
        errors.not_supported(&at.field("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == Some("Indexed") {
        indexed(spec, at, errors);
    }
    if mode.is_none_or(|mode| mode == "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = spec.number_if_set(field) {
                errors.invalid(&at.field(field), number, "requires indexed completion mode");
            }
        }
    }
}

fn indexed(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let completions = spec.number_if_set("completions");
    let parallelism = spec.number("parallelism");
    let failed = spec.number_if_set("maxFailedIndexes");
    let (parallelism_at, failed_at) = (at.field("parallelism"), at.field("maxFailedIndexes"));
    if completions.is_none() {
        errors.required(&at.field("completions"), "when completion mode is Indexed");
    }
    if parallelism > MAX_INDEXED {
        let detail = format!("must be less than or equal to {MAX_INDEXED} when completion mode is Indexed");
        errors.invalid(&parallelism_at, parallelism, detail);
    }
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        errors.invalid(&failed_at, failed, "must be less than or equal to completions");
    }
    if let Some(failed) = failed.filter(|failed| *failed > MAX_INDEXED) {
        errors.invalid(&failed_at, failed, format!("must be less than or equal to {MAX_INDEXED}"));
    }
    let many = completions.is_some_and(|completions| completions > MAX_INDEXED);
    if !many || spec.part("backoffLimitPerIndex").is_none() {
        return;
    }
    let limit = format!(
        "must be less than or equal to {MAX_WHEN_MANY_COMPLETIONS} when completions are above {MAX_INDEXED} and used with backoff limit per index"
    );
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MAX_INDEXED}");
        errors.required(&failed_at, detail);
    }
    if parallelism > MAX_WHEN_MANY_COMPLETIONS {
        errors.invalid(&parallelism_at, parallelism, limit.as_str());
    }
    if let Some(failed) = failed.filter(|failed| *failed > MAX_WHEN_MANY_COMPLETIONS) {
        errors.invalid(&failed_at, failed, limit);
    }
}

fn replacement_policy(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(policy) = spec.text_if_set("podReplacementPolicy") else { return };
    let known: &[&str] = if spec.part("podFailurePolicy").is_some() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    if !known.contains(&policy) {
        errors.not_supported(at, policy, known);
    }
}

fn restart_policy(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match spec.part("template").part("spec").text("restartPolicy") {
        "Always" | "" => errors.required(at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.part("podFailurePolicy").is_some() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(at, "OnFailure", detail);
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(at, other, &["OnFailure", "Never"]),
    }
}

fn failure_policy(policy: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("rules");
    let rules = policy.items("rules");
    if rules.len() > MAX_FAILURE_RULES {
        errors.too_many(&list, rules.len(), MAX_FAILURE_RULES);
    }
    for (i, rule) in rules.iter().enumerate() {
        failure_rule(rule, spec, &list.index(i), errors);
    }
}

fn failure_rule(rule: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let action_at = at.field("action");
    match rule.text("action") {
        "" => errors.required(&action_at, valid_values(&ACTIONS)),
        "FailIndex" if spec.part("backoffLimitPerIndex").is_none() => {
            errors.invalid(&action_at, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action if !ACTIONS.contains(&action) => errors.not_supported(&action_at, action, &ACTIONS),
        _ => {}
    }
    let codes = rule.part("onExitCodes");
    if let Some(codes) = codes {
        exit_codes(codes, spec, &at.field("onExitCodes"), errors);
    }
    let conditions = rule.items("onPodConditions");
    if !conditions.is_empty() {
        condition_patterns(conditions, &at.field("onPodConditions"), errors);
    }
    let detail = match (codes.is_some(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.report(FieldErrorKind::Invalid, at, None, detail.to_owned());
}

/// Formats `valid values: ["A" "B"]`, as Go prints a list of quoted strings.
fn valid_values(known: &[&str]) -> String {
    let quoted: Vec<String> = known.iter().map(|name| api::field::quote(name)).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn condition_patterns(patterns: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
    if patterns.len() > MAX_CONDITION_PATTERNS {
        errors.too_many(at, patterns.len(), MAX_CONDITION_PATTERNS);
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let at = at.index(i);
        let kind = pattern.text("type");
        errors.invalid_each(&at.field("type"), kind, names::is_qualified_name(kind));
        let status_at = at.field("status");
        match pattern.text("status") {
            "" => errors.required(&status_at, valid_values(&STATUSES)),
            status if !STATUSES.contains(&status) => errors.not_supported(&status_at, status, &STATUSES),
            _ => {}
        }
    }
}

fn exit_codes(codes: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let operator_at = at.field("operator");
    let operator = codes.text("operator");
    match operator {
        "" => errors.required(&operator_at, valid_values(&OPERATORS)),
        operator if !OPERATORS.contains(&operator) => {
            errors.not_supported(&operator_at, operator, &OPERATORS);
        }
        _ => {}
    }
    if let Some(name) = codes.text_if_set("containerName") {
        let pod = spec.part("template").part("spec");
        let exists = ["containers", "initContainers"]
            .iter()
            .flat_map(|list| pod.items(list))
            .any(|container| container.text("name") == name);
        if !exists {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(&at.field("containerName"), name, detail);
        }
    }
    let list = at.field("values");
    let values: Vec<i64> = codes.items("values").iter().filter_map(Value::as_int).collect();
    let all = || codes.part("values").cloned().unwrap_or_default();
    if values.is_empty() {
        errors.invalid(&list, all(), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        errors.too_many(&list, values.len(), MAX_EXIT_CODES);
    }
    let repeated = Repeated::earlier(&values);
    for (i, code) in values.iter().enumerate() {
        let at = list.index(i);
        if operator == "In" && *code == 0 {
            errors.invalid(&at, *code, "must not be 0 for the In operator");
        }
        if repeated.at(i) {
            errors.duplicate(&at, *code);
        }
    }
    if !values.is_sorted() {
        errors.invalid(&list, all(), "must be ordered");
    }
}

fn success_policy(policy: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("rules");
    let rules = policy.items("rules");
    if rules.is_empty() {
        errors.required(&list, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MAX_SUCCESS_RULES {
        errors.too_many(&list, rules.len(), MAX_SUCCESS_RULES);
    }
    let completions = spec.number("completions");
    for (i, rule) in rules.iter().enumerate() {
        let at = list.index(i);
        let (indexes, count) = (rule.text_if_set("succeededIndexes"), rule.number_if_set("succeededCount"));
        if indexes.is_none() && count.is_none() {
            errors.required(&at, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if let Some(indexes) = indexes {
            let at = at.field("succeededIndexes");
            if indexes.len() > MAX_SUCCEEDED_INDEXES {
                errors.too_long(&at, MAX_SUCCEEDED_INDEXES);
            }
            match job_status::indexes(indexes, completions) {
                Ok(number) => total = number,
                Err(why) => errors.invalid(&at, indexes, format!("error parsing succeededIndexes: {why}")),
            }
        }
        let Some(count) = count else { continue };
        let at = at.field("succeededCount");
        errors.not_negative(&at, count);
        if count > completions {
            let detail =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(&at, count, detail);
        }
        if indexes.is_some() && count > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&at, count, detail);
        }
    }
}

fn completions_update(new: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let at = SPEC.field("completions");
    let (completions, before) = (new.number_if_set("completions"), old.number_if_set("completions"));
    if completions == before {
        return;
    }
    if new.text("completionMode") != "Indexed" {
        errors.immutable(&at, new.part("completions"), old.part("completions"));
        return;
    }
    if let Some(completions) = completions
        && new.number_if_set("parallelism") != Some(completions)
    {
        errors.invalid(&at, completions, "can only be modified in tandem with spec.parallelism");
    }
}

/// Allows template changes only while the job is suspended and has no active pods: scheduling fields and resources.
fn template_update(spec: Option<&Value>, old_job: &Value, errors: &mut FieldErrors) {
    let (old_spec, old_status) = (old_job.part("spec"), old_job.part("status"));
    let suspended = old_spec.flag("suspend");
    let waits = suspended
        && (old_status.part("startTime").is_none() || job_status::is_true(old_status, "Suspended"))
        && old_status.number("active") == 0;
    let no_template = Value::Map(Map::new());
    let new = spec.part("template").unwrap_or(&no_template);
    let mut old = old_spec.part("template").cloned().unwrap_or_else(|| Map::new().into());
    if !waits {
        if !same(Some(new), Some(&old)) {
            let json = internal_json::compact("PodTemplateSpec", Some(new));
            errors.invalid_json(&SPEC.field("template"), &json, IMMUTABLE);
        }
        return;
    }
    take_scheduling(&mut old, new);
    take_resources(&mut old, new);
    if !same(new.part("spec"), old.part("spec")) {
        let json = internal_json::compact("PodSpec", new.part("spec"));
        errors.invalid_json(&SPEC.field("template.spec"), &json, IMMUTABLE);
    }
}

fn take_scheduling(old: &mut Value, new: &Value) {
    let new_spec = new.part("spec");
    let Some(pod) = old.get_mut("spec") else { return };
    match new_spec.part("affinity").cloned() {
        None => {
            pod.remove_at(&["affinity", "nodeAffinity"]);
            if pod.part("affinity").and_then(Value::as_map).is_some_and(Map::is_empty) {
                pod.remove_at(&["affinity"]);
            }
        }
        Some(affinity) => {
            if let Some(node) = affinity.part("nodeAffinity") {
                pod.set_at(&["affinity", "nodeAffinity"], node.clone());
            } else {
                if pod.part("affinity").is_none() {
                    pod.set_at(&["affinity"], Map::new());
                }
                pod.remove_at(&["affinity", "nodeAffinity"]);
            }
        }
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        match new_spec.part(field) {
            Some(value) => pod.set_at(&[field], value.clone()),
            None => {
                pod.remove_at(&[field]);
            }
        }
    }
}

fn take_resources(old: &mut Value, new: &Value) {
    let Some(pod) = old.get_mut("spec") else { return };
    for list in ["containers", "initContainers"] {
        let new = new.part("spec").items(list);
        let Some(old) = pod.get_mut(list).and_then(Value::as_list_mut) else { continue };
        if old.len() != new.len() {
            continue;
        }
        for (old, new) in old.iter_mut().zip(new) {
            if old.text("name") == new.text("name") {
                match new.part("resources") {
                    Some(resources) => old.set_at(&["resources"], resources.clone()),
                    None => {
                        old.remove_at(&["resources"]);
                    }
                }
            }
        }
    }
}

fn cron_job_create(object: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    cron_job_spec(object.part("spec"), None, &PodValidationOptions::for_template(None, context), &mut errors);
    let name = object.part("metadata").text("name");
    if name.len() > MAX_CRON_JOB_NAME {
        let detail = format!("must be no more than {MAX_CRON_JOB_NAME} characters");
        errors.invalid(&At::new("metadata.name"), name, detail);
    }
    supersede(errors, declared_of_cron_job(object))
}

fn cron_job_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let old_spec = old.part("spec");
    let old_template = old_spec.part("jobTemplate").part("spec").part("template");
    let options = PodValidationOptions::for_template(old_template, context);
    cron_job_spec(new.part("spec"), Some(old), &options, &mut errors);
    supersede(errors, declared_of_cron_job(new))
}

/// Declarative validation, whose errors come after all others.
fn declared_of_cron_job(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if object.part("spec").text("schedule").is_empty() {
        errors.required(&SPEC.field("schedule"), "");
    }
    errors
}

fn cron_job_spec(
    spec: Option<&Value>,
    old: Option<&Value>,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) {
    let schedule = spec.text("schedule");
    let zone = spec.text_if_set("timeZone");
    if schedule.is_empty() {
        errors.required(&SPEC.field("schedule"), "");
    } else {
        let old_zone = old.is_some_and(|old| old.part("spec").text("schedule").contains("TZ"));
        schedule_format(schedule, zone, old_zone, errors);
    }
    errors.not_negative(&SPEC.field("startingDeadlineSeconds"), spec.number("startingDeadlineSeconds"));
    if old.is_none_or(|old| old.part("spec").text_if_set("timeZone") != zone)
        && let Some(zone) = zone
    {
        cron::time_zone(zone, &SPEC.field("timeZone"), errors);
    }
    let at = SPEC.field("concurrencyPolicy");
    match spec.text("concurrencyPolicy") {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.required(&at, ""),
        other => errors.not_supported(&at, other, &["Allow", "Forbid", "Replace"]),
    }
    let job = spec.part("jobTemplate").part("spec");
    let at = SPEC.field("jobTemplate.spec");
    job_spec(job, options, &at, errors);
    if let Some(selector) = job.part("selector") {
        let json = meta::label_selector_json(Some(selector));
        errors.invalid_json(&at.field("selector"), &json, "`selector` will be auto-generated");
    }
    if job.flag("manualSelector") {
        errors.not_supported(&at.field("manualSelector"), true, &["nil", "false"]);
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.not_negative(&SPEC.field(field), spec.number(field));
    }
}

fn schedule_format(schedule: &str, zone: Option<&str>, old_zone: bool, errors: &mut FieldErrors) {
    let at = SPEC.field("schedule");
    if let Err(why) = cron::check(schedule) {
        errors.invalid(&at, schedule, why);
    }
    if schedule.contains("TZ") {
        if !old_zone {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.invalid(&at, schedule, detail);
        } else if zone.is_some() {
            let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.invalid(&at, schedule, detail);
        }
    }
}
