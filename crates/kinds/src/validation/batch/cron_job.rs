//! Validation of CronJob: its schedule, time zone and job template.

use api::validation::fields::{At, Read, Report, supersede};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::{SPEC, job_spec};
use crate::validation::pod::options::PodValidationOptions;
use crate::validation::{ValidationContext, ValidationRules, cron, no_rules};

pub(crate) const CRON_JOB: ValidationRules = ValidationRules { create, update, update_status: no_rules };

const MAX_CRON_JOB_NAME: usize = 52;

fn create(object: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    spec_rules(object.part("spec"), None, &PodValidationOptions::for_template(None, context), &mut errors);
    let name = object.part("metadata").text("name");
    if name.len() > MAX_CRON_JOB_NAME {
        let detail = format!("must be no more than {MAX_CRON_JOB_NAME} characters");
        errors.invalid(&At::new("metadata.name"), name, detail);
    }
    supersede(errors, declared(object))
}

fn update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let old_spec = old.part("spec");
    let old_template = old_spec.part("jobTemplate").part("spec").part("template");
    let options = PodValidationOptions::for_template(old_template, context);
    spec_rules(new.part("spec"), Some(old), &options, &mut errors);
    supersede(errors, declared(new))
}

/// Declarative validation, whose errors come after all others.
fn declared(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if object.part("spec").text("schedule").is_empty() {
        errors.required(&SPEC.field("schedule"), "");
    }
    errors
}

fn spec_rules(
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
