//! Validates CustomResourceDefinitions: names, versions, schemas, subresources, columns and conversion.
//!
//! Kubernetes validates an internal form of the spec, in which settings common to all versions are moved to the top level
//! (`spec.validation` and so on). Error paths refer to that form, here as well.

use std::collections::HashSet;
use std::sync::Arc;

mod conversion;
mod defaults;
mod extensions;
mod quoted;
mod schema;
mod strictness;
mod structural;
#[cfg(test)]
mod tests;
mod version_features;
mod warnings;

use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use api::validation::repeated::{Repeated, first_by};
use api::{FieldErrors, names};
use value::{Budget, BudgetEnded, Map, Value};

use self::conversion::conversion;
use self::strictness::Strictness;
use self::version_features::{columns, selectable, subresources};
pub use self::warnings::warnings;
use crate::names::{APPROVED, Approval, approved, is_protected};
use crate::{OverlappingBuiltIn, Stopwatch};

/// Inputs of validation besides the CRD.
pub struct CrdValidationContext {
    pub stopwatch: Option<Arc<dyn Stopwatch>>,
    /// The remaining steps of the request.
    pub budget: Budget,
    pub overlapping: OverlappingBuiltIn,
}

pub fn update_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = meta::update(new, old);
    accepted_names(new.part("status").part("acceptedNames"), &At::new("status.acceptedNames"), &mut errors);
    errors
}

const SPEC: At<'static> = At::new("spec");

pub fn create(crd: &Value, context: &CrdValidationContext) -> FieldErrors {
    let spec = crd.part("spec");
    let wanted = format!("{}.{}", spec.part("names").text("plural"), spec.text("group"));
    let mut errors = FieldErrors::new();
    for field in ["generateName", "name"] {
        let name = api::meta::text(crd, field);
        if !name.is_empty() {
            let mut wrong = names::name_is_dns_subdomain(name, field == "generateName");
            if name != wanted {
                wrong.push("must be spec.names.plural+\".\"+spec.group".to_owned());
            }
            errors.invalid_each(&At::new("metadata").field(field), name, wrong);
        }
    }
    errors.extend(meta::create(crd, false, |_, _| Vec::new()));
    let internal = internal(spec);
    spec_rules(&internal, &Strictness::for_create(context), &mut errors);
    own_directory(&internal, context.overlapping, &mut errors);
    status_rules(crd, &mut errors);
    approval(crd, None, &mut errors);
    preserve(&internal, None, &mut errors);
    errors
}

pub fn update(new: &Value, old: &Value, context: &CrdValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (spec, former) = (internal(new.part("spec")), internal(old.part("spec")));
    let strict = Strictness::for_update(&spec, &former, is_established(old), context);
    spec_rules(&spec, &strict, &mut errors);
    let text = |spec: &Value, path: &[&str]| spec.str_at(path).unwrap_or_default().to_owned();
    let mut fixed = |path: &[&str]| {
        let (now, before) = (text(&spec, path), text(&former, path));
        if now != before {
            errors.invalid(&SPEC.field(&path.join(".")), now, IMMUTABLE);
        }
    };
    if strict.names {
        fixed(&["scope"]);
        fixed(&["names", "kind"]);
    }
    fixed(&["group"]);
    fixed(&["names", "plural"]);
    status_rules(new, &mut errors);
    approval(new, Some(old), &mut errors);
    preserve(&spec, Some(&former), &mut errors);
    errors
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd.list_at(&["status", "conditions"]).iter();
    let mut established = conditions.filter(|condition| condition.text("type") == "Established");
    established.any(|condition| condition.text("status") == "True")
}

/// Converts a spec to the internal form: fields that are equal in all versions move to the top level.
fn internal(spec: Option<&Value>) -> Value {
    let mut internal = spec.cloned().unwrap_or(Value::Map(Map::new()));
    let versions = spec.items("versions");
    let Some(first) = versions.first() else { return internal };
    for (field, above) in [
        ("subresources", "subresources"),
        ("schema", "validation"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
        ("selectableFields", "selectableFields"),
    ] {
        let common = first.part(field);
        if !versions.iter().all(|version| same(version.part(field), common)) {
            continue;
        }
        if let Some(common) = common {
            internal.set_at(&[above], common.clone());
        }
        if let Some(versions) = internal.at_mut(&["versions"]).and_then(Value::as_list_mut) {
            for version in versions {
                version.remove_at(&[field]);
            }
        }
    }
    internal
}

/// Reports all of `wrong` as one error.
fn joined(at: &At<'_>, text: &str, before: &str, wrong: &[String], errors: &mut FieldErrors) {
    if !wrong.is_empty() {
        errors.invalid(at, text, format!("{before}{}", wrong.join(",")));
    }
}

fn spec_rules(spec: &Value, strict: &Strictness, errors: &mut FieldErrors) {
    group_rules(spec.text("group"), errors);
    one_of(spec.text("scope"), &["Cluster", "Namespaced"], &SPEC.field("scope"), errors);
    schemas_required(spec, strict, errors);
    if spec.flag("preserveUnknownFields") && strictness::any(spec, &|schema| schema.part("default").is_some())
    {
        let detail = "must be false in order to use defaults in the schema";
        errors.invalid(&SPEC.field("preserveUnknownFields"), true, detail);
    }
    versions_rules(spec, strict, errors);
    let names_at = SPEC.field("names");
    let given = spec.part("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if given.text(field).is_empty() {
            errors.required(&names_at.field(field), "");
        }
    }
    accepted_names(given, &names_at, errors);
    common_rules(spec, strict, errors);
    conversion(spec, strict, errors);
}

fn group_rules(group: &str, errors: &mut FieldErrors) {
    let wrong = names::is_dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&SPEC.field("group"), "");
    } else if !wrong.is_empty() {
        joined(&SPEC.field("group"), group, "", &wrong, errors);
    } else if !group.contains('.') {
        errors.invalid(&SPEC.field("group"), group, "should be a domain with at least one dot");
    }
}

/// Requires a schema for each version, unless all versions have the same.
fn schemas_required(spec: &Value, strict: &Strictness, errors: &mut FieldErrors) {
    if spec.part("validation").part("openAPIV3Schema").is_some() {
        return;
    }
    let list = SPEC.field("versions");
    for (i, version) in spec.items("versions").iter().enumerate() {
        if version.part("schema").part("openAPIV3Schema").is_some() {
            continue;
        }
        let at = list.index(i);
        let at = at.field("schema.openAPIV3Schema");
        if strict.schemas {
            errors.required(&at, "");
        } else if !spec.flag("preserveUnknownFields") && version.flag("served") {
            errors.required(&at, "because otherwise all fields are pruned");
        }
    }
}

fn versions_rules(spec: &Value, strict: &Strictness, errors: &mut FieldErrors) {
    let versions = spec.items("versions");
    let list = SPEC.field("versions");
    for (i, version) in versions.iter().enumerate() {
        let at = list.index(i);
        // A request that has ended is not answered. The error makes sure that nothing unvalidated is stored.
        if strict.budget.check() == Err(BudgetEnded::Canceled) {
            return errors.forbidden(&at, "validation was canceled because the request ended");
        }
        let name = version.text("name");
        joined(&at.field("name"), name, "", &names::is_dns1035_label(name), errors);
        let subresources = spec.part("subresources").or_else(|| version.part("subresources"));
        version_rules(version, subresources, strict, &at, errors);
    }
    if Repeated::of_field(versions, "name").any() {
        errors.invalid_json(&list, &quoted::versions(spec), "must contain unique version names");
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.invalid_json(&list, &quoted::versions(spec), detail);
    }
    if let Some(first) = versions.first().filter(|first| !first.text("name").is_empty()) {
        let name = first.text("name");
        joined(&SPEC.field("version"), name, "", &names::is_dns1035_label(name), errors);
    }
}

/// Validates the settings that are common to all versions.
fn common_rules(spec: &Value, strict: &Strictness, errors: &mut FieldErrors) {
    let versions = spec.items("versions");
    let any_status = spec.part("subresources").part("status").is_some()
        || versions.iter().any(|version| version.part("subresources").part("status").is_some());
    let first = versions.first().text("name");
    let unchanged = strict.unchanged.contains(first);
    validation(spec.part("validation"), any_status, strict, unchanged, &SPEC.field("validation"), errors);
    subresources(spec.part("subresources"), &SPEC.field("subresources"), errors);
    columns(spec.items("additionalPrinterColumns"), &SPEC.field("additionalPrinterColumns"), errors);
    let fields = spec.items("selectableFields");
    if fields.is_empty() {
        return;
    }
    let at = SPEC.field("selectableFields");
    match spec.part("validation") {
        None => errors.invalid(&at, "", "may only be set when validations.schema is included"),
        Some(validation) => {
            let schema = validation.part("openAPIV3Schema");
            report_unreadable(schema, &SPEC.field("schema.openAPIV3Schema"), errors);
            selectable(fields, schema, strict.many_selectable.contains(""), &at, errors);
        }
    }
}

/// Reports a schema in which selectable fields cannot be looked up.
fn report_unreadable(schema: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(why) = schema.and_then(structural::unreadable) {
        errors.invalid(at, "", why);
    }
}

/// Rejects CRDs whose objects would share a storage directory with a built-in resource. Kubernetes accepts such CRDs.
fn own_directory(spec: &Value, overlapping: OverlappingBuiltIn, errors: &mut FieldErrors) {
    let (group, plural) = (spec.text("group"), spec.part("names").text("plural"));
    if let Some(built_in) = overlapping(group, plural) {
        let detail =
            format!("{built_in} is a built-in resource, whose storage custom resources must not share");
        errors.invalid(&SPEC.field("names.plural"), plural, detail);
    }
}

fn one_of(value: &str, allowed: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    if value.is_empty() {
        errors.required(at, "");
    } else if !allowed.contains(&value) {
        errors.not_supported(at, value, allowed);
    }
}

fn version_rules(
    version: &Value,
    of_version: Option<&Value>,
    strict: &Strictness,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if let Some(warning) = version.text_if_set("deprecationWarning") {
        let warning_at = at.field("deprecationWarning");
        // This is a pointer in Go, so errors show the text as JSON.
        let shown = value::write::to_string(&Value::from(warning));
        for wrong in deprecation_warning(version.flag("deprecated"), warning) {
            errors.invalid_json(&warning_at, &shown, &wrong);
        }
    }
    let name = version.text("name");
    let has_status = of_version.part("status").is_some();
    let unchanged = strict.unchanged.contains(name);
    validation(version.part("schema"), has_status, strict, unchanged, &at.field("schema"), errors);
    subresources(version.part("subresources"), &at.field("subresources"), errors);
    columns(version.items("additionalPrinterColumns"), &at.field("additionalPrinterColumns"), errors);
    let fields = version.items("selectableFields");
    if !fields.is_empty() {
        let fields_at = at.field("selectableFields");
        match version.part("schema").part("openAPIV3Schema") {
            None => {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.invalid(&fields_at, "", detail);
            }
            schema => {
                report_unreadable(schema, &at.field("schema.openAPIV3Schema"), errors);
                let may_exceed = strict.many_selectable.contains(name);
                selectable(fields, schema, may_exceed, &fields_at, errors);
            }
        }
    }
}

fn deprecation_warning(deprecated: bool, warning: &str) -> Vec<String> {
    if !deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut wrong = Vec::new();
    if warning.len() > 256 {
        wrong.push("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        wrong.push("must not be an empty string".to_owned());
    }
    // Go's `%q` leaves printable characters unchanged.
    let hidden = warning.char_indices().find(|(_, c)| {
        *c != '"' && *c != '\\' && api::field::quote(c.encode_utf8(&mut [0; 4])).len() != c.len_utf8() + 2
    });
    if let Some((at, _)) = hidden {
        wrong.push(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
    wrong
}

/// Validates the schema of one version, or the schema common to all versions.
fn validation(
    validation: Option<&Value>,
    has_status: bool,
    strict: &Strictness,
    unchanged: bool,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let Some(schema) = validation.part("openAPIV3Schema") else { return };
    let before = errors.len();
    let schema_at = at.field("openAPIV3Schema");
    if has_status {
        schema::root_with_status(schema, &schema_at, errors);
    }
    if schema.flag("nullable") {
        errors.forbidden(&at.field("openAPIV3Schema.nullable"), "nullable cannot be true at the root");
    }
    let mut unreadable = None;
    let mut with_rules = false;
    if strict.structural {
        unreadable = structural::unreadable(schema);
        if unreadable.is_none() {
            let violations = structural::violations(schema, &schema_at);
            if violations.is_empty() {
                let wrong = defaults::check(schema, &schema_at, strict);
                with_rules = wrong.is_empty();
                errors.extend(wrong);
            } else {
                errors.extend(violations);
            }
        }
    }
    schema::check(schema, &schema_at, strict, unchanged, with_rules, errors);
    if let Some(why) = unreadable.filter(|_| errors.len() == before) {
        errors.invalid(&schema_at, "", why);
    }
}

fn status_rules(crd: &Value, errors: &mut FieldErrors) {
    accepted_names(crd.part("status").part("acceptedNames"), &At::new("status.acceptedNames"), errors);
    stored_versions(crd, errors);
}

fn accepted_names(given: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    for (field, before) in [("plural", ""), ("singular", ""), ("kind", MIXED), ("listKind", MIXED)] {
        let name = given.text(field);
        if !name.is_empty() {
            let checked = if before.is_empty() { name.to_owned() } else { name.to_lowercase() };
            joined(&at.field(field), name, before, &names::is_dns1035_label(&checked), errors);
        }
    }
    let short = at.field("shortNames");
    for (i, name) in given.texts("shortNames").enumerate() {
        joined(&short.index(i), name, "", &names::is_dns1035_label(name), errors);
    }
    let kind = given.text("kind");
    if !kind.is_empty() && kind == given.text("listKind") {
        errors.invalid(&at.field("listKind"), kind, "kind and listKind may not be the same");
    }
    let categories = at.field("categories");
    for (i, category) in given.texts("categories").enumerate() {
        joined(&categories.index(i), category, "", &names::is_dns1035_label(category), errors);
    }
}

fn stored_versions(crd: &Value, errors: &mut FieldErrors) {
    let at = At::new("status.storedVersions");
    let stored: Vec<&str> = crd.part("status").texts("storedVersions").collect();
    if stored.is_empty() {
        errors.invalid(&at, Value::Null, "must have at least one stored version");
        return;
    }
    let versions = crd.list_at(&["spec", "versions"]);
    let repeated = Repeated::of_field(versions, "name");
    let known: HashSet<&str> = stored.iter().copied().collect();
    for (i, current) in versions.iter().enumerate().filter(|(_, version)| version.flag("storage")) {
        if errors.is_full() {
            break;
        }
        let name = current.text("name");
        // A second version with the same name does not match a stored version.
        if repeated.at(i) || !known.contains(name) {
            let detail = format!("must have the storage version {name}");
            errors.invalid(&at, Value::list(stored.iter().copied()), detail);
        }
    }
    let served = first_by(versions, "name");
    for (i, version) in stored.iter().enumerate() {
        if !served.contains_key(version) {
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            errors.invalid(&at.index(i), *version, detail);
        }
    }
}

fn approval(new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    if !is_protected(new.part("spec").text("group")) {
        return;
    }
    let (state, why) = approved(new);
    if old.is_some_and(|old| approved(old).0 == state) {
        return;
    }
    let annotations = At::new("metadata.annotations");
    let at = annotations.key(APPROVED);
    match state {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.required(&at, why),
        Approval::Invalid => {
            let annotation = new.part("metadata").part("annotations").text(APPROVED);
            errors.invalid(&at, annotation, why);
        }
    }
}

fn preserve(spec: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    if old.is_some_and(|old| old.flag("preserveUnknownFields")) || !spec.flag("preserveUnknownFields") {
        return;
    }
    let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    errors.invalid(&SPEC.field("preserveUnknownFields"), true, detail);
}

/// The reason and message of the `NonStructuralSchema` condition; `None` if all schemas are structural.
pub(crate) fn non_structural(crd: &Value) -> Option<(&'static str, String)> {
    let mut errors = FieldErrors::new();
    if crd.part("spec").flag("preserveUnknownFields") {
        errors.invalid(&SPEC.field("preserveUnknownFields"), true, "must be false");
    }
    let list = SPEC.field("versions");
    for (i, version) in crd.part("spec").items("versions").iter().enumerate() {
        let Some(schema) = version.part("schema").part("openAPIV3Schema") else { continue };
        if let Some(why) = structural::unreadable(schema) {
            let name = version.text("name");
            return Some((
                "StructuralError",
                format!("failed to check validation schema for version {name}: {why}"),
            ));
        }
        let at = list.index(i);
        errors.extend(structural::violations(schema, &at.field("schema.openAPIV3Schema")));
    }
    (!errors.is_empty()).then(|| ("Violations", defaults::joined(&errors)))
}
