//! Validation of ResourcePoolStatusRequest. All of it but metadata and conditions is declarative.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use value::Value;

use super::resource::MAX_POOL_NAME;
use super::resource_declared::{fixed_spec, limited, subdomain, unique};
use super::{ValidationRules, internal_json};

pub(crate) const STATUS_REQUEST: ValidationRules = ValidationRules {
    create: |request, _| {
        let mut errors = meta::create(request, false, names::name_is_dns_subdomain);
        spec(request.part("spec"), &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        fixed_spec(new, old, &mut errors);
        errors
    },
    update_status: |new, old, _| {
        let mut errors = meta::update(new, old);
        update_status(new.part("status"), old.part("status"), &mut errors);
        errors
    },
};

const MAX_LIMIT: i64 = 1000;
const MAX_POOLS: usize = 1000;
const MAX_CONDITIONS: usize = 10;
/// Maximum length of a validation error, in bytes.
const MAX_ERROR: usize = 256;
/// Maximum number of partition types and of shared capacities of a pool.
const MAX_SUMMARY: usize = 32;

fn spec(spec: Option<&Value>, errors: &mut FieldErrors) {
    let at = At::new("spec");
    long_name_in_any_case(spec.text("driver"), &at.field("driver"), errors);
    if let Some(name) = spec.text_if_set("poolName") {
        pool_name(name, &at.field("poolName"), errors);
    }
    let limit = at.field("limit");
    match spec.number_if_set("limit") {
        None => errors.required(&limit, ""),
        Some(number) if number > MAX_LIMIT => {
            errors.invalid(&limit, number, format!("must be less than or equal to {MAX_LIMIT}"));
        }
        Some(number) => minimum(number, 1, &limit, errors),
    }
}

/// A name that may be empty if it is a pointer, unlike those that are required.
fn pool_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.invalid(at, name, "segment 0: must not be empty");
    } else {
        pool(name, at, errors);
    }
}

fn minimum(number: i64, least: i64, at: &At<'_>, errors: &mut FieldErrors) {
    if number < least {
        errors.invalid(at, number, format!("must be greater than or equal to {least}"));
    }
}

/// Numbers that must be set and not negative.
fn required_counts(holder: Option<&Value>, fields: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    for field in fields {
        match holder.number_if_set(field) {
            None => errors.required(&at.field(field), ""),
            Some(count) => minimum(count, 0, &at.field(field), errors),
        }
    }
}

fn update_status(status: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let at = At::new("status");
    if same(status, old) {
        return;
    }
    let conditions = at.field("conditions");
    if old.is_some() {
        let shown = internal_json::compact("*ResourcePoolStatusRequestStatus", status);
        errors.report(FieldErrorKind::Invalid, &at, None, format!("{shown}: {IMMUTABLE}"));
    } else {
        meta::conditions(status.items("conditions"), &conditions, errors);
    }
    if status.is_none() {
        return;
    }
    required_counts(status, &["poolCount"], &at, errors);
    if !same(status.part("pools"), old.part("pools")) && limited(status, "pools", MAX_POOLS, &at, errors) {
        let list = at.field("pools");
        for (i, pool) in status.items("pools").iter().enumerate() {
            pool_status(pool, &list.index(i), errors);
        }
    }
    if !same(status.part("conditions"), old.part("conditions")) {
        limited(status, "conditions", MAX_CONDITIONS, &at, errors);
    }
}

fn pool_status(status: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    long_name_in_any_case(status.text("driver"), &at.field("driver"), errors);
    pool(status.text("poolName"), &at.field("poolName"), errors);
    match status.number("generation") {
        0 => errors.required(&at.field("generation"), ""),
        generation => minimum(generation, 0, &at.field("generation"), errors),
    }
    let counts = ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"]
        .map(|field| (field, 0));
    for (field, least) in [("resourceSliceCount", 1)].into_iter().chain(counts) {
        if let Some(count) = status.number_if_set(field) {
            minimum(count, least, &at.field(field), errors);
        }
    }
    if let Some(node) = status.text_if_set("nodeName") {
        errors.invalid_each(&at.field("nodeName"), node, subdomain(node));
    }
    if status.text("validationError").len() > MAX_ERROR {
        errors.too_long(&at.field("validationError"), MAX_ERROR);
    }
    if limited(Some(status), "partitionSummary", MAX_SUMMARY, at, errors) {
        partitions(status.items("partitionSummary"), &at.field("partitionSummary"), errors);
    }
    if let Some(summary) = status.part("shareableSummary") {
        shared(summary, &at.field("shareableSummary"), errors);
    }
}

fn partitions(partitions: &[Value], list: &At<'_>, errors: &mut FieldErrors) {
    unique(partitions, "v1alpha3.PartitionTypeStatus", list, errors, |partition| {
        (partition.text("attribute"), partition.text("type"))
    });
    for (i, partition) in partitions.iter().enumerate() {
        let at = list.index(i);
        required_texts(partition, &["attribute", "type"], &at, errors);
        required_counts(Some(partition), &["total", "allocatable"], &at, errors);
    }
}

fn shared(summary: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let counts = ["fullyAvailableDevices", "partiallyAvailableDevices"];
    required_counts(Some(summary), &counts, at, errors);
    if !limited(Some(summary), "capacity", MAX_SUMMARY, at, errors) {
        return;
    }
    let list = at.field("capacity");
    for (i, capacity) in summary.items("capacity").iter().enumerate() {
        let at = list.index(i);
        required_texts(capacity, &["name", "total", "consumed", "available"], &at, errors);
    }
}

/// Texts and quantities that must be set.
fn required_texts(holder: &Value, fields: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    for field in fields {
        if holder.text(field).is_empty() {
            errors.required(&at.field(field), "");
        }
    }
}

/// Validates a required name that is a subdomain apart from its case.
pub(super) fn long_name_in_any_case(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    // Uppercase is accepted, with its own message.
    for detail in subdomain(&name.to_lowercase()) {
        let detail = detail
            .replace(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric",
                "an RFC 1123 subdomain must consist of alphanumeric",
            )
            .replace("'example.com'", "'Example.com'");
        errors.invalid(at, name, detail);
    }
}

/// Validates a required name of a pool: subdomains, separated by slashes.
pub(super) fn pool(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    if name.len() > MAX_POOL_NAME {
        errors.too_long(at, MAX_POOL_NAME);
    }
    for (i, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.invalid(at, name, format!("segment {i}: must not be empty"));
            continue;
        }
        for detail in subdomain(part) {
            errors.invalid(at, part, format!("segment {i}: {detail}"));
        }
    }
}
