//! Validation of StorageVersionMigration: create, update and status.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use value::Value;

use super::{ValidationContext, ValidationRules, internal_json};

pub(crate) const MIGRATION: ValidationRules = ValidationRules {
    create: |migration, _| create(migration),
    update: |new, old, _| {
        let mut errors = create(new);
        errors.extend(meta::update(new, old));
        if !same(new.part("spec"), old.part("spec")) {
            let shown = internal_json::compact("StorageVersionMigrationSpec", new.part("spec"));
            errors.report(FieldErrorKind::Invalid, &At::new("spec"), None, format!("{shown}: {IMMUTABLE}"));
        }
        errors
    },
    update_status,
};

fn create(migration: &Value) -> FieldErrors {
    let mut errors = meta::create(migration, false, names::name_is_dns_subdomain);
    let target = migration.part("spec").part("resource");
    let at = At::new("spec.resource");
    let resource = target.text("resource");
    if resource.is_empty() {
        errors.required(&at.field("resource"), "resource is required to be set");
    } else {
        let wrong = names::is_dns1035_label(resource);
        if !wrong.is_empty() {
            errors.invalid(&at.field("resource"), resource, wrong.join(","));
        }
    }
    let group = target.text("group");
    if !group.is_empty() {
        let wrong = names::is_dns1123_subdomain(group);
        if !wrong.is_empty() {
            errors.invalid(&at.field("group"), group, wrong.join(","));
        }
    }
    errors
}

fn update_status(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (status, former) = (new.part("status"), old.part("status"));
    let at = At::new("status.conditions");
    meta::conditions(status.items("conditions"), &at, &mut errors);
    let (version, before) = (status.text("resourceVersion"), former.text("resourceVersion"));
    if !before.is_empty() && before != version {
        errors.invalid(&At::new("status.resourceVersion"), version, IMMUTABLE);
    }
    let is_true = |status: Option<&Value>, kind: &str| {
        let mut conditions = status.items("conditions").iter();
        conditions.any(|condition| condition.text("type") == kind && condition.text("status") == "True")
    };
    let mut refuse = |detail: &str| {
        let shown = status.part("conditions").cloned().unwrap_or_default();
        errors.invalid(&at, shown, detail);
    };
    if is_true(status, "Succeeded") && is_true(status, "Failed") {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    for (kind, shown) in [("Succeeded", "Success"), ("Failed", "Failed")] {
        if is_true(former, kind) && !is_true(status, kind) {
            refuse(&format!("{shown} condition cannot be set to false once it is true"));
        }
    }
    errors
}
