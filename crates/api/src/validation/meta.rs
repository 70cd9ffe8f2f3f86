//! Validation of metadata: the rules all kinds share, and those for labels, annotations and selectors in any field.
//!
//! A create runs [`create`] with the kind's own name rule; an update runs [`update_any`], and then the rules of the kind,
//! which begin with [`update`] once more: clients see the errors of both in the causes of a `Status`.

use std::collections::HashSet;

use value::{Value, write};

use crate::finalizers::{self, FOREGROUND, ORPHAN};
use crate::{FieldErrors, gvk::GroupVersion, names};

use super::fields::{At, IMMUTABLE, Read, Report, same};
use super::repeated::Repeated;

/// The name rule of a kind: maps `(name, is_prefix)` to error messages. A prefix is a `generateName`.
pub type NameRule = fn(&str, bool) -> Vec<String>;

/// Maximum total size in bytes of the annotations of one object.
pub const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;

const MAX_FIELD_MANAGER: usize = 128;
const MAX_SUBRESOURCE: usize = 256;
const MAX_REASON: usize = 1 << 10;
const MAX_MESSAGE: usize = 32 << 10;

const METADATA: At<'static> = At::new("metadata");

/// Validates that a name can be one segment of a URL path, which every kind requires.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { names::is_path_segment_prefix(name) } else { names::is_path_segment_name(name) }
}

/// Validates the metadata of a new object, at `metadata`.
pub fn create(object: &Value, namespaced: bool, name_rule: NameRule) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let metadata = object.part("metadata");
    let generate_name = metadata.text("generateName");
    if !generate_name.is_empty() {
        errors.invalid_each(&METADATA.field("generateName"), generate_name, name_rule(generate_name, true));
    }
    let name = metadata.text("name");
    if name.is_empty() {
        errors.required(&METADATA.field("name"), "name or generateName is required");
    } else {
        errors.invalid_each(&METADATA.field("name"), name, name_rule(name, false));
    }
    create_beside_name(metadata, namespaced, &mut errors);
    known_finalizers(object, &mut errors);
    errors
}

/// Like [`create`], for kinds that validate the name with their own rules and ignore `generateName`.
pub fn create_without_name(object: &Value, namespaced: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let metadata = object.part("metadata");
    let generate_name = metadata.text("generateName");
    if metadata.text("name").is_empty() {
        if !generate_name.is_empty() {
            let detail = format!(
                "generateName was specified ({}), but no name was generated",
                crate::field::quote(generate_name)
            );
            errors.internal(&METADATA.field("name"), detail);
        }
        errors.required(&METADATA.field("name"), "name or generateName is required");
    }
    create_beside_name(metadata, namespaced, &mut errors);
    known_finalizers(object, &mut errors);
    errors
}

fn create_beside_name(metadata: Option<&Value>, namespaced: bool, errors: &mut FieldErrors) {
    let namespace = metadata.text("namespace");
    let at = METADATA.field("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&at, ""),
        (true, false) => errors.invalid_each(&at, namespace, names::name_is_dns_label(namespace, false)),
        (false, false) => errors.forbidden(&at, "not allowed on this type"),
        (false, true) => {}
    }
    errors.not_negative(&METADATA.field("generation"), metadata.number("generation"));
    labels(metadata, "labels", &METADATA, errors);
    annotations(metadata, &METADATA, errors);
    owner_references(metadata, errors);
    finalizers(metadata, errors);
    managed_fields(metadata, errors);
}

/// Validates the metadata of any update, before the rules of its kind.
pub fn update_any(new: &Value, old: &Value, namespaced: bool) -> FieldErrors {
    let mut errors = create(new, namespaced, path_segment);
    errors.append(&mut update(new, old));
    errors
}

/// Validates a change of metadata.
pub fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let object = new;
    let (new, old) = (new.part("metadata"), old.part("metadata"));
    if old.part("deletionTimestamp").is_some() {
        no_new_finalizers(new, old, &mut errors);
    }
    if new.text("resourceVersion").is_empty() {
        errors.invalid(&METADATA.field("resourceVersion"), "", "must be specified for an update");
    }
    let at = METADATA.field("generation");
    let generation = new.number("generation");
    errors.not_negative(&at, generation);
    if generation < old.number("generation") {
        errors.invalid(&at, generation, "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        if new.text(field) != old.text(field) {
            errors.invalid(&METADATA.field(field), new.text(field), IMMUTABLE);
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (new.part(field), old.part(field));
        if !same(new, old) {
            // Times are formatted as in Go's JSON.
            errors.invalid(&METADATA.field(field), new.cloned().unwrap_or_default(), IMMUTABLE);
        }
    }
    labels(new, "labels", &METADATA, &mut errors);
    annotations(new, &METADATA, &mut errors);
    owner_references(new, &mut errors);
    managed_fields(new, &mut errors);
    known_finalizers(object, &mut errors);
    errors
}

fn no_new_finalizers(new: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let mut added: Vec<&str> = new.texts("finalizers").collect();
    let before: HashSet<&str> = old.texts("finalizers").collect();
    added.retain(|name| !before.contains(name));
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let listed: Vec<String> = added.iter().map(|name| crate::field::quote(name)).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            listed.join(", ")
        );
        errors.forbidden(&METADATA.field("finalizers"), detail);
    }
}

/// Validates a map of labels in `field` of `holder`.
pub fn labels(holder: Option<&Value>, field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let at = at.field(field);
    for (key, value) in holder.text_entries(field) {
        label_name(key, &at, errors);
        errors.invalid_each(&at, value, names::is_valid_label_value(value));
    }
}

/// Validates labels or annotations returned by a conversion webhook.
pub fn converted(field: &str, entries: &value::Map) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let holder = Value::map([(field, Value::Map(entries.clone()))]);
    match field {
        "labels" => labels(Some(&holder), "labels", &METADATA, &mut errors),
        _ => annotations(Some(&holder), &METADATA, &mut errors),
    }
    errors
}

/// Validates the key of a label.
pub fn label_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(at, name, names::is_qualified_name(name));
}

/// Validates the annotations of `holder`, an object's metadata.
pub fn annotations(holder: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let at = at.field("annotations");
    let mut size = 0;
    for (key, value) in holder.text_entries("annotations") {
        errors.invalid_each(&at, key, names::is_qualified_name(&key.to_lowercase()));
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS_SIZE {
        errors.too_long(&at, MAX_ANNOTATIONS_SIZE);
    }
}

fn owner_references(metadata: Option<&Value>, errors: &mut FieldErrors) {
    let list = METADATA.field("ownerReferences");
    let mut controller: Option<String> = None;
    let mut is_reported = false;
    let references = metadata.items("ownerReferences");
    for (i, reference) in references.iter().enumerate() {
        let at = list.index(i);
        owner_reference(reference, &at, errors);
        if reference.flag("controller") {
            let this = format!("{}/{}", reference.text("kind"), reference.text("name"));
            match &controller {
                // Report it once: each report would repeat the whole list.
                Some(_) if is_reported => {}
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    let all: Vec<String> = references.iter().map(owner_reference_json).collect();
                    errors.invalid_json(&list, &format!("[{}]", all.join(",")), &detail);
                    is_reported = true;
                }
                None => controller = Some(this),
            }
        }
    }
}

fn owner_reference(reference: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let api_version = reference.text("apiVersion");
    let parsed = GroupVersion::parse(api_version).ok().filter(|gv| !gv.version.is_empty());
    if api_version.is_empty() {
        errors.required(&at.field("apiVersion"), "must not be empty");
    } else if parsed.is_none() {
        errors.invalid(&at.field("apiVersion"), api_version, "must be <group>/<version> or <version>");
    }
    for field in ["kind", "name", "uid"] {
        if reference.text(field).is_empty() {
            errors.required(&at.field(field), "must not be empty");
        }
    }
    if api_version == "v1" && reference.text("kind") == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.invalid_json(at, &owner_reference_json(reference), detail);
    }
}

/// Formats an owner reference as JSON, with the fields in the order of the Go struct.
fn owner_reference_json(reference: &Value) -> String {
    let text = |field: &str| format!("\"{field}\":{}", write::to_string(&reference.text(field).into()));
    let mut fields: Vec<String> = ["apiVersion", "kind", "name", "uid"].map(text).to_vec();
    for field in ["controller", "blockOwnerDeletion"] {
        if let Some(flag) = reference.flag_if_set(field) {
            fields.push(format!("\"{field}\":{flag}"));
        }
    }
    format!("{{{}}}", fields.join(","))
}

fn finalizers(metadata: Option<&Value>, errors: &mut FieldErrors) {
    let at = METADATA.field("finalizers");
    for name in metadata.texts("finalizers") {
        errors.invalid_each(&at, name, names::is_qualified_name(name));
    }
    let has = |wanted: &str| metadata.texts("finalizers").any(|name| name == wanted);
    if has(ORPHAN) && has(FOREGROUND) {
        let all = Value::from(metadata.items("finalizers").to_vec());
        errors.invalid(&at, all, format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set"));
    }
}

/// Requires that a finalizer without a domain is one of Kubernetes' own. Only the listed built-in groups have this rule.
fn known_finalizers(object: &Value, errors: &mut FieldErrors) {
    const GROUPS: [&str; 13] = [
        "",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    ];
    let (group, _) = GroupVersion::split(object.text("apiVersion"));
    if !GROUPS.contains(&group) {
        return;
    }
    let list = METADATA.field("finalizers");
    for (i, name) in object.part("metadata").texts("finalizers").enumerate() {
        if !name.contains('/') && !finalizers::STANDARD.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&list.index(i), name, detail);
        }
    }
}

fn managed_fields(metadata: Option<&Value>, errors: &mut FieldErrors) {
    let list = METADATA.field("managedFields");
    for (i, entry) in metadata.items("managedFields").iter().enumerate() {
        let at = list.index(i);
        match entry.text("operation") {
            "Apply" | "Update" => {}
            "" => errors.required(&at.field("operation"), "must not be empty"),
            other => errors.not_supported(&at.field("operation"), other, &["Apply", "Update"]),
        }
        let fields_type = entry.text("fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.invalid(&at.field("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        field_manager(entry.text("manager"), &at.field("manager"), errors);
        if entry.text("subresource").len() > MAX_SUBRESOURCE {
            errors.too_long(&at.field("subresource"), MAX_SUBRESOURCE);
        }
    }
}

/// Validates the name of a field manager, in an object or in request options.
pub fn field_manager(manager: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if manager.len() > MAX_FIELD_MANAGER {
        errors.too_long(at, MAX_FIELD_MANAGER);
    }
    for (position, character) in manager.char_indices() {
        let quoted = crate::field::quote(character.encode_utf8(&mut [0; 4]));
        let printable = quoted.contains(character);
        if !printable {
            let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(character));
            errors.invalid(at, manager, detail);
        }
    }
}

/// Validates a label selector; `lenient` skips the values of `matchExpressions`, for invalid ones that the stored object already has.
pub fn label_selector(selector: Option<&Value>, lenient: bool, at: &At<'_>, errors: &mut FieldErrors) {
    labels(selector, "matchLabels", at, errors);
    let list = at.field("matchExpressions");
    for (i, requirement) in selector.items("matchExpressions").iter().enumerate() {
        let at = list.index(i);
        selector_operator(requirement, &at, errors);
        label_name(requirement.text("key"), &at.field("key"), errors);
        if !lenient {
            let at = at.field("values");
            for (i, value) in requirement.texts("values").enumerate() {
                errors.invalid_each(&at.index(i), value, names::is_valid_label_value(value));
            }
        }
    }
}

/// The detail of the error about an unknown operator of a selector.
pub const UNKNOWN_OPERATOR: &str = "not a valid selector operator";

/// Validates the operator of a requirement, and that it has values exactly if the operator needs them.
pub fn selector_operator(requirement: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let has_values = !requirement.items("values").is_empty();
    match requirement.text("operator") {
        "In" | "NotIn" if !has_values => {
            errors.required(&at.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if has_values => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&at.field("values"), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(&at.field("operator"), other, UNKNOWN_OPERATOR),
    }
}

/// Reports whether a selector has a label value that would be rejected in a new object.
pub fn has_invalid_label_value(selector: Option<&Value>) -> bool {
    selector
        .items("matchExpressions")
        .iter()
        .flat_map(|requirement| requirement.texts("values"))
        .any(|value| !names::is_valid_label_value(value).is_empty())
}

/// Formats a label selector as JSON, with the fields in the order of the Go struct.
pub fn label_selector_json(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "null".to_owned() };
    let mut parts: Vec<String> = Vec::new();
    if let Some(labels) =
        selector.part("matchLabels").filter(|labels| labels.as_map().is_some_and(|m| !m.is_empty()))
    {
        parts.push(format!("\"matchLabels\":{}", write::to_string(labels)));
    }
    let requirement = |requirement: &Value| {
        let mut fields: Vec<String> = ["key", "operator"]
            .map(|field| format!("\"{field}\":{}", write::to_string(&requirement.text(field).into())))
            .to_vec();
        if let Some(values) = requirement.part("values") {
            fields.push(format!("\"values\":{}", write::to_string(values)));
        }
        format!("{{{}}}", fields.join(","))
    };
    let requirements = selector.items("matchExpressions");
    if !requirements.is_empty() {
        let requirements: Vec<String> = requirements.iter().map(requirement).collect();
        parts.push(format!("\"matchExpressions\":[{}]", requirements.join(",")));
    }
    format!("{{{}}}", parts.join(","))
}

/// Validates a list of `metav1.Condition`.
pub fn conditions(list: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    let repeated = Repeated::of_field(list, "type");
    for (i, condition) in list.iter().enumerate() {
        let at = at.index(i);
        let kind = condition.text("type");
        if repeated.at(i) {
            errors.duplicate(&at, kind);
        }
        if kind.is_empty() {
            errors.required(&at.field("type"), "is required");
        } else {
            label_name(kind, &at.field("type"), errors);
        }
        match condition.text("status") {
            "" => errors.required(&at.field("status"), ""),
            "True" | "False" | "Unknown" => {}
            other => errors.not_supported(&at.field("status"), other, &["False", "True", "Unknown"]),
        }
        let generation = condition.number("observedGeneration");
        if generation < 0 {
            let detail = "must be greater than or equal to zero";
            errors.invalid(&at.field("observedGeneration"), generation, detail);
        }
        if condition.text("lastTransitionTime").is_empty() {
            errors.required(&at.field("lastTransitionTime"), "");
        }
        let reason = condition.text("reason");
        if reason.is_empty() {
            errors.required(&at.field("reason"), "");
        } else {
            if !is_condition_reason(reason) {
                errors.invalid(&at.field("reason"), reason, CONDITION_REASON);
            }
            if reason.len() > MAX_REASON {
                errors.too_long(&at.field("reason"), MAX_REASON);
            }
        }
        if condition.text("message").len() > MAX_MESSAGE {
            errors.too_long(&at.field("message"), MAX_MESSAGE);
        }
    }
}

const CONDITION_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
     alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  \
     or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
     '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

fn is_condition_reason(reason: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(is_word)
        && reason.chars().all(|c| is_word(c) || c == ',' || c == ':')
}
