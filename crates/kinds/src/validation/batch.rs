//! Validation of the `batch` group: Job and CronJob.

mod cron_job;
mod policies;
mod template_update;

use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

pub(crate) use self::cron_job::CRON_JOB;
use self::policies::{failure_policy, success_policy};
use self::template_update::template_update;
use super::label_match::selects;
use super::pod::options::PodValidationOptions;
use super::template::template;
use super::{ValidationContext, ValidationRules, internal_json, job_status};

pub(crate) const JOB: ValidationRules =
    ValidationRules { create: job_create, update: job_update, update_status: job_status::update };

const SPEC: At<'static> = At::new("spec");
const MAX_INDEXED: i64 = 100_000;
const MAX_WHEN_MANY_COMPLETIONS: i64 = 10_000;
const MAX_MANAGED_BY: usize = 63;

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
