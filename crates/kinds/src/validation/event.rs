//! Validation of Event, in the core group and in `events.k8s.io`.
//!
//! Events of both groups are stored as core events, and the rules apply to that form. Only the strict rules that
//! `events.k8s.io/v1` adds depend on the group of the request.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use api::{names, namespaces};
use value::Value;

use super::{ValidationRules, internal_json, no_rules};

pub(crate) const CORE_EVENT: ValidationRules = ValidationRules {
    create: |event, _| common(event, "reportingComponent"),
    update: |new, _, _| common(new, "reportingComponent"),
    update_status: no_rules,
};
/// Rules of `events.k8s.io/v1`, applied to the stored core form.
pub(crate) const EVENT: ValidationRules = ValidationRules {
    create: |event, _| create_v1(event),
    update: |new, old, _| update_v1(new, old),
    update_status: no_rules,
};

const MAX_INSTANCE: usize = 128;
const MAX_ACTION: usize = 128;
const MAX_REASON: usize = 128;
const MAX_NOTE: usize = 1024;

fn common(event: &Value, controller_field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let namespace = api::meta::namespace(event);
    let about = event.part("involvedObject").text("namespace");
    let mut mismatch = |wrong: bool| {
        if wrong {
            errors.invalid(&At::new("involvedObject.namespace"), about, "does not match event.namespace");
        }
    };
    if event.text("eventTime").is_empty() {
        if about.is_empty() {
            mismatch(!matches!(namespace, "" | "default"));
        } else {
            mismatch(namespace != about);
        }
        return errors;
    }
    mismatch(about.is_empty() && !matches!(namespace, namespaces::DEFAULT | namespaces::SYSTEM));
    let controller = event.text("reportingComponent");
    let at = At::new(controller_field);
    if controller.is_empty() {
        errors.required(&at, "");
    }
    errors.invalid_each(&at, controller, names::is_qualified_name(controller));
    let limits = [("reportingInstance", MAX_INSTANCE), ("action", MAX_ACTION), ("reason", MAX_REASON)];
    for (field, most) in limits {
        let text = event.text(field);
        if text.is_empty() {
            errors.required(&At::new(field), "");
        }
        at_most(text, most, field, &mut errors);
    }
    at_most(event.text("message"), MAX_NOTE, "message", &mut errors);
    errors
}

fn at_most(text: &str, most: usize, field: &str, errors: &mut FieldErrors) {
    if text.len() > most {
        errors.invalid(&At::new(field), "", format!("can have at most {most} characters"));
    }
}

fn create_v1(event: &Value) -> FieldErrors {
    let mut errors = common(event, "reportingController");
    errors.extend(meta::create(event, true, names::name_is_dns_subdomain));
    series(event, &mut errors);
    if event.text("eventTime").is_empty() {
        errors.required(&At::new("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&At::new("type"), "", format!("has invalid value: {kind}"));
    }
    let source = event.part("source");
    let deprecated = [
        ("firstTimestamp", !event.text("firstTimestamp").is_empty()),
        ("lastTimestamp", !event.text("lastTimestamp").is_empty()),
        ("count", event.number("count") != 0),
        ("source", !source.text("component").is_empty() || !source.text("host").is_empty()),
    ];
    for (field, is_set) in deprecated {
        if is_set {
            errors.invalid(&At::new(field), "", "needs to be unset");
        }
    }
    errors
}

fn update_v1(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = common(new, "reportingController");
    errors.extend(meta::update(new, old));
    if !same(new.part("series"), old.part("series")) {
        series(new, &mut errors);
    }
    let fixed = [
        ("involvedObject", "involvedObject", "ObjectReference"),
        ("reason", "reason", "text"),
        ("message", "message", "text"),
        ("source", "source", "EventSource"),
        ("firstTimestamp", "firstTimestamp", "time"),
        ("lastTimestamp", "lastTimestamp", "time"),
        ("count", "count", "number"),
        ("reason", "reason", "text"),
        ("type", "type", "text"),
        ("eventTime", "eventTime", "time"),
        ("action", "action", "text"),
        ("related", "related", "*ObjectReference"),
        ("reportingComponent", "reportingController", "text"),
        ("reportingInstance", "reportingInstance", "text"),
    ];
    for (field, shown_field, kind) in fixed {
        let (now, before) = (new.part(field), old.part(field));
        let unchanged = match kind {
            "text" => new.text(field) == old.text(field),
            "number" => new.number(field) == old.number(field),
            _ => same(now, before),
        };
        if !unchanged {
            let shown = internal_json::compact(kind, now);
            let detail = format!("{shown}: {IMMUTABLE}");
            errors.report(FieldErrorKind::Invalid, &At::new(shown_field), None, detail);
        }
    }
    errors
}

fn series(event: &Value, errors: &mut FieldErrors) {
    let Some(series) = event.part("series") else { return };
    if series.number("count") < 2 {
        errors.invalid(&At::new("series.count"), "", "should be at least 2");
    }
    if series.text("lastObservedTime").is_empty() {
        errors.required(&At::new("series.lastObservedTime"), "");
    }
}
