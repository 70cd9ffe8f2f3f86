//! Validation of the claim spec in PersistentVolumeClaims and ephemeral volumes, and of a pod's device claims.

use std::collections::HashSet;

use api::meta::MIRROR_POD;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::{FieldErrors, names, quantity::Quantity};
use value::{Map, Value};

use crate::validation::{internal_json, optional_value};

/// Validates the metadata of a claim template, which may contain only labels and annotations.
pub(in crate::validation) fn template_metadata(
    metadata: Option<&Value>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    /// Forbidden fields in the order of checking, and their names in error paths.
    const OTHERS: &[(&str, &str)] = &[
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("selfLink", "selfLink"),
        ("uid", "uID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
        ("managedFields", "managedFields"),
    ];
    meta::annotations(metadata, at, errors);
    meta::labels(metadata, "labels", at, errors);
    for (field, path) in OTHERS {
        let is_set = match metadata.part(field) {
            None | Some(Value::Int(0)) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) => true,
        };
        if is_set {
            errors.forbidden(&at.field(path), "cannot be set");
        }
    }
}

/// Validates the spec of a PersistentVolumeClaim. `old_group` allows an invalid API group that the old claim has.
pub(crate) fn claim_spec(spec: Option<&Value>, old_group: bool, at: &At<'_>, errors: &mut FieldErrors) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
    let modes = at.field("accessModes");
    if spec.items("accessModes").is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    meta::label_selector(spec.part("selector"), false, &at.field("selector"), errors);
    for mode in spec.texts("accessModes").filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&modes, mode, &MODES);
    }
    let known = |mode: &&str| MODES.contains(mode);
    let exclusive = |mode: &str| mode == "ReadWriteOncePod";
    if spec.texts("accessModes").any(exclusive)
        && spec.texts("accessModes").filter(known).any(|mode| !exclusive(mode))
    {
        errors.forbidden(&modes, "may not use ReadWriteOncePod with other access modes");
    }
    let resources = at.field("resources");
    let storage_at = resources.key("storage");
    match spec.part("resources").part("requests").text_if_set("storage") {
        None => errors.required(&storage_at, ""),
        Some(text) => {
            if Quantity::parse(text).is_ok_and(|quantity| quantity.sign() <= 0) {
                errors.invalid(&storage_at, text, "must be greater than zero");
            }
        }
    }
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        let at = at.field("storageClassName");
        errors.invalid_each(&at, class, names::name_is_dns_subdomain(class, false));
    }
    optional_value(spec, "volumeMode", &VOLUME_MODES, at, errors);
    data_sources(spec, old_group, at, errors);
    let class = spec.text("volumeAttributesClassName");
    if !class.is_empty() {
        let at = at.field("volumeAttributesClassName");
        errors.invalid_each(&at, class, names::name_is_dns_subdomain(class, false));
    }
}

fn data_sources(spec: Option<&Value>, old_group: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let (source, reference) = (spec.part("dataSource"), spec.part("dataSourceRef"));
    if let Some(source) = source {
        data_source(source, old_group, &at.field("dataSource"), errors);
    }
    let namespace = reference.text("namespace");
    if let Some(reference) = reference {
        let at = at.field("dataSourceRef");
        data_source(reference, old_group, &at, errors);
        if !namespace.is_empty() {
            let at = at.field("namespace");
            errors.invalid_each(&at, namespace, names::name_is_dns_label(namespace, false));
        }
    }
    let (Some(source), Some(reference)) = (source, reference) else { return };
    if !namespace.is_empty() {
        errors.invalid(at, Map::new(), "may not be specified when dataSourceRef.namespace is specified");
    } else if ["kind", "name"].iter().any(|field| source.text(field) != reference.text(field))
        || source.text_if_set("apiGroup") != reference.text_if_set("apiGroup")
    {
        errors.invalid(at, Map::new(), "must match dataSourceRef");
    }
}

fn data_source(source: &Value, old_group: bool, at: &At<'_>, errors: &mut FieldErrors) {
    for field in ["name", "kind"] {
        if source.text(field).is_empty() {
            errors.required(&at.field(field), "");
        }
    }
    let (group, kind) = (source.text("apiGroup"), source.text("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(at, kind, detail);
    }
    if !group.is_empty() && !old_group {
        errors.invalid_each(&at.field("apiGroup"), group, names::is_dns1123_subdomain(group));
    }
}

/// Validates `resourceClaims` of a pod.
pub(in crate::validation) fn resource_claims(
    spec: &Value,
    pod: Option<&Value>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let list = at.field("resourceClaims");
    let mut seen: HashSet<&str> = HashSet::new();
    let is_mirror = pod.part("annotations").part(MIRROR_POD).is_some();
    for (i, claim) in spec.items("resourceClaims").iter().enumerate() {
        if is_mirror {
            errors.forbidden(&At::ROOT, "static pods do not support resource claims");
            continue;
        }
        let at = list.index(i);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if seen.contains(name) {
            errors.duplicate(&at.field("name"), name);
        } else {
            errors.invalid_each(&at.field("name"), name, names::is_dns1123_label(name));
            seen.insert(name);
        }
        let fields = ["resourceClaimName", "resourceClaimTemplateName"];
        let detail = match fields.map(|field| claim.part(field).is_some()) {
            [true, true] => {
                Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
            }
            [false, false] => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        if let Some(detail) = detail {
            errors.invalid_json(&at, &internal_json::compact("PodResourceClaim", Some(claim)), detail);
        }
        for field in fields {
            if let Some(name) = claim.text_if_set(field) {
                errors.invalid_each(&at.field(field), name, names::name_is_dns_subdomain(name, false));
            }
        }
    }
}
