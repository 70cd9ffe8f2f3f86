//! Validation of access reviews and token requests, which are not stored.

use api::FieldErrors;
use api::attestation::{AttestationDialect, EVERY_GROUP, WebhookConfigurationKind};
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use value::Value;

use super::{ValidationRules, internal_json, no_rules, token_seconds};

pub(crate) const SUBJECT_ACCESS_REVIEW: ValidationRules =
    ValidationRules { create: |review, _| subject_review(review), update: no_rules, update_status: no_rules };
pub(crate) const SELF_SUBJECT_ACCESS_REVIEW: ValidationRules =
    ValidationRules { create: |review, _| self_review(review), update: no_rules, update_status: no_rules };
pub(crate) const LOCAL_SUBJECT_ACCESS_REVIEW: ValidationRules =
    ValidationRules { create: |review, _| local_review(review), update: no_rules, update_status: no_rules };
pub(crate) const TOKEN_REQUEST: ValidationRules = ValidationRules {
    create: |request, _| token_request(request),
    update: no_rules,
    update_status: no_rules,
};

const SPEC: At<'static> = At::new("spec");
const RESOURCE: At<'static> = At::new("spec.resourceAttributes");

fn subject_review(review: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    review_spec(review, true, &mut errors);
    empty_metadata(review, &[], "must be empty", &mut errors);
    errors
}

fn self_review(review: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    review_spec(review, false, &mut errors);
    empty_metadata(review, &[], "must be empty", &mut errors);
    errors
}

fn local_review(review: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    review_spec(review, true, &mut errors);
    empty_metadata(review, &["namespace"], "must be empty except for namespace", &mut errors);
    let spec = review.part("spec");
    if let Some(attributes) = spec.part("resourceAttributes") {
        let namespace = attributes.text("namespace");
        if namespace != api::meta::namespace(review) {
            errors.invalid(&RESOURCE.field("namespace"), namespace, "must match metadata.namespace");
        }
    }
    if let Some(attributes) = spec.part("nonResourceAttributes") {
        let shown = internal_json::compact("NonResourceAttributes", Some(attributes));
        let detail = format!("{shown}: disallowed on this kind of request");
        errors.report(FieldErrorKind::Invalid, &SPEC.field("nonResourceAttributes"), None, detail);
    }
    errors
}

fn review_spec(review: &Value, needs_subject: bool, errors: &mut FieldErrors) {
    let spec = review.part("spec");
    let (resource, other) = (spec.part("resourceAttributes"), spec.part("nonResourceAttributes"));
    if resource.is_some() == other.is_some() {
        let shown = internal_json::compact("*NonResourceAttributes", other);
        let detail =
            format!("{shown}: exactly one of nonResourceAttributes or resourceAttributes must be specified");
        errors.report(FieldErrorKind::Invalid, &SPEC, None, detail);
    }
    if needs_subject && spec.text("user").is_empty() && spec.items("groups").is_empty() {
        errors.invalid(&SPEC.field("user"), "", "at least one of user or group must be specified");
    }
    for field in ["fieldSelector", "labelSelector"] {
        if let Some(selector) = resource.part(field) {
            selector_rules(selector, field == "labelSelector", &RESOURCE.field(field), errors);
        }
    }
}

fn selector_rules(selector: &Value, is_label: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let raw = selector.text("rawSelector");
    let requirements = selector.items("requirements");
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.invalid(&at.field("rawSelector"), raw, detail);
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {at} is specified, requirements or rawSelector is required");
        errors.required(&at.field("requirements"), detail);
    }
    let list = at.field("requirements");
    for (i, requirement) in requirements.iter().enumerate() {
        let here = list.index(i);
        let values = requirement.items("values");
        let key = requirement.text("key");
        if !is_label && key.is_empty() {
            errors.required(&here.field("key"), "must be specified");
        }
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.required(&here.field("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&here.field("values"), detail);
            }
            _ => {}
        }
        if is_label {
            meta::label_name(key, &here.field("key"), errors);
            let values_at = here.field("values");
            for (j, value) in requirement.texts("values").enumerate() {
                errors.invalid_each(&values_at.index(j), value, names::is_valid_label_value(value));
            }
        }
    }
}

fn empty_metadata(review: &Value, besides: &[&str], words: &str, errors: &mut FieldErrors) {
    let Some(metadata) = review.map_of("metadata") else { return };
    let is_zero = |value: &Value| match value {
        Value::Null | Value::Int(0) => true,
        Value::String(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    };
    let extra = metadata.iter().any(|(field, value)| {
        field != "managedFields" && !besides.contains(&field.as_str()) && !is_zero(value)
    });
    if extra {
        let shown = internal_json::compact("ObjectMeta", review.part("metadata"));
        errors.report(FieldErrorKind::Invalid, &At::new("metadata"), None, format!("{shown}: {words}"));
    }
}

fn token_request(request: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = request.part("spec");
    token_seconds(spec.number("expirationSeconds"), &SPEC.field("expirationSeconds"), &mut errors);
    let is_webhook = spec.part("boundObjectRef").and_then(WebhookConfigurationKind::of_reference).is_some();
    let given = |dialect: AttestationDialect| spec.map_of(dialect.field()).filter(|map| !map.is_empty());
    if !is_webhook {
        let Some(dialect) = AttestationDialect::ALL.into_iter().find(|dialect| given(*dialect).is_some())
        else {
            return errors;
        };
        let field = dialect.field();
        return FieldErrors::from([api::FieldError {
            kind: FieldErrorKind::Invalid,
            field: SPEC.field(field).to_string(),
            bad_value: spec.part(field).cloned(),
            detail: format!("{field} may only be specified with a webhook bound object reference"),
        }]);
    }
    let audiences = spec.items("audiences");
    if audiences.len() != 1 {
        let shown = spec.part("audiences").cloned().unwrap_or_default();
        errors.invalid(&SPEC.field("audiences"), shown, "must be length 1 when bound to a webhook config");
    }
    if AttestationDialect::ALL.into_iter().all(|dialect| given(dialect).is_some()) {
        errors.forbidden(
            &SPEC.field(AttestationDialect::Kep.field()),
            "may not be specified together with attestations",
        );
        return errors;
    }
    attestations(spec, &mut errors);
    errors
}

/// Validates the attestation of a token bound to a webhook: exactly one API group, or all groups.
fn attestations(spec: Option<&Value>, errors: &mut FieldErrors) {
    let dialect = AttestationDialect::of(spec);
    let (field, only_key) = (dialect.field(), dialect.key());
    let at = SPEC.field(field);
    let entries = spec.map_of(field).filter(|map| map.len() == 1);
    let Some((key, values)) = entries.and_then(|map| map.entry_at(0)) else {
        let shown = spec.part(field).cloned().unwrap_or_default();
        let word = if dialect == AttestationDialect::Kep { "claim" } else { "attestation" };
        errors.invalid(&at, shown, format!("webhook bound requests require exactly one {only_key} {word}"));
        return;
    };
    let here = at.key(key);
    if key != only_key {
        errors.not_supported(&here, key.as_str(), &[only_key]);
        return;
    }
    let Some([group]) = values.as_list() else {
        errors.invalid(&here, values.clone(), "must specify a single value");
        return;
    };
    let group = group.as_str().unwrap_or_default();
    let here = here.index(0);
    match (group, dialect) {
        // The core group has a permission name in the KEP's dialect, but not in Kubernetes'.
        ("", AttestationDialect::Kep) | (EVERY_GROUP, _) => {}
        ("", AttestationDialect::Kubernetes) => errors.invalid(&here, group, "may not be an empty string"),
        _ if dialect.is_reserved(group) => {
            errors.invalid(&here, group, "must specify a valid API Group: the core group is \"\"");
        }
        _ => {
            for reason in names::is_dns1123_subdomain(group) {
                errors.invalid(&here, group, format!("must specify a valid API Group: {reason}"));
            }
        }
    }
}
