//! Validation of eviction requests and evictions.

mod declared;
mod responders;

use std::collections::HashMap;

use api::validation::fields::{At, Read, Report, supersede};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use self::declared::{EVICTION_OBJECT, EVICTION_REQUEST_OBJECT};
use self::responders::{EvictionOutcome, status_responders, target_responders};
use super::declared::{DeclaredContext, DeclaredType};
use super::{ValidationContext, ValidationRules, internal_json};

pub(super) use self::declared::EVICTION_RESPONDERS;

pub(crate) const EVICTION_REQUEST: ValidationRules = ValidationRules {
    create: |object, context| created(&EVICTION_REQUEST_OBJECT, object, context),
    update: |new, old, context| updated(&EVICTION_REQUEST_OBJECT, new, old, context),
    update_status: |new, old, context| {
        let mut errors = meta::update(new, old);
        conditions(new.part("status"), &mut errors);
        supersede(errors, declared(&EVICTION_REQUEST_OBJECT, new, Some(old), context))
    },
};

pub(crate) const EVICTION: ValidationRules = ValidationRules {
    create: |object, context| created(&EVICTION_OBJECT, object, context),
    update: |new, old, context| updated(&EVICTION_OBJECT, new, old, context),
    update_status: |new, old, context| {
        let mut errors = meta::update(new, old);
        let (status, former) = (new.part("status"), old.part("status"));
        conditions(status, &mut errors);
        let outcome = outcome(status, former, &mut errors);
        target_responders(status, former, outcome, context.now, &mut errors);
        status_responders(status, former, context.now, &mut errors);
        supersede(errors, declared(&EVICTION_OBJECT, new, Some(old), context))
    },
};

const STATUS: At<'static> = At::new("status");

fn created(of: &DeclaredType, object: &Value, context: &ValidationContext) -> FieldErrors {
    let errors = meta::create(object, true, names::name_is_dns_subdomain);
    supersede(errors, declared(of, object, None, context))
}

fn updated(of: &DeclaredType, new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    supersede(meta::update(new, old), declared(of, new, Some(old), context))
}

fn declared(of: &DeclaredType, new: &Value, old: Option<&Value>, context: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let declared = DeclaredContext { is_update: old.is_some(), features: context.features };
    declared.check(of, Some(new), old, &At::ROOT, &mut errors);
    errors
}

fn conditions(status: Option<&Value>, errors: &mut FieldErrors) {
    meta::conditions(status.items("conditions"), &STATUS.field("conditions"), errors);
}

/// Whether the target is evicted, and whether the eviction failed. Neither can be taken back.
fn outcome(status: Option<&Value>, former: Option<&Value>, errors: &mut FieldErrors) -> EvictionOutcome {
    const FINAL: [&str; 2] = ["TargetEvicted", "Failed"];
    let conditions = status.items("conditions");
    // Of conditions with the same type, the first counts.
    let by_type: HashMap<&str, &Value> =
        conditions.iter().rev().map(|condition| (condition.text("type"), condition)).collect();
    let is_true = |kind: &str| by_type.get(kind).is_some_and(|condition| condition.text("status") == "True");
    let mut outcome = EvictionOutcome { evicted: is_true(FINAL[0]), failed: is_true(FINAL[1]) };
    let at = STATUS.field("conditions");
    let mut reported = 0;
    for before in former.items("conditions") {
        let kind = before.text("type");
        if !FINAL.contains(&kind) || before.text("status") != "True" {
            continue;
        }
        let is_unchanged = by_type.get(kind).is_some_and(|condition| {
            condition.text("status") != "False" && condition.text("reason") == before.text("reason")
        });
        if is_unchanged {
            continue;
        }
        // Types are unique in a stored object. An object that another server stored may break that rule.
        if reported < FINAL.len() {
            reported += 1;
            let shown = internal_json::compact("[]v1.Condition", status.part("conditions"));
            errors.invalid_json(&at, &shown, &format!("{kind} condition status cannot be reverted"));
        }
        outcome.evicted |= kind == FINAL[0];
        outcome.failed |= kind == FINAL[1];
    }
    outcome
}
