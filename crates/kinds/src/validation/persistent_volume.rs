//! Validation of PersistentVolume and of inline volume specs.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::quantity::Quantity;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use value::{Map, Value};

use super::pod::scheduling::node_selector;
use super::pod::volume_paths::no_backsteps;
use super::pod::volume_sources::{csi_driver_name, has_iscsi_prefix, is_iscsi_name};
use super::pod::volumes::shared_source;
use super::{
    TextRule, ValidationContext, ValidationRules, internal_json, required_name, required_texts, unified_diff,
};

pub(crate) const PERSISTENT_VOLUME: ValidationRules =
    ValidationRules { create: volume, update: volume_update, update_status: volume_status_update };

const SPEC: At<'static> = At::new("spec");
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const INLINE: &str = "may not be specified in the context of inline volumes";

/// Sources in the order of checking: field, path for the error about a second source, rules.
const SOURCES: &[(&str, &str, VolumeSourceRules)] = &[
    ("hostPath", "hostPath", VolumeSourceRules::Shared),
    ("gcePersistentDisk", "gcePersistentDisk", VolumeSourceRules::Shared),
    ("awsElasticBlockStore", "awsElasticBlockStore", VolumeSourceRules::Shared),
    ("glusterfs", "glusterfs", VolumeSourceRules::Own(glusterfs)),
    ("flocker", "flocker", VolumeSourceRules::Shared),
    ("nfs", "nfs", VolumeSourceRules::Shared),
    ("rbd", "rbd", VolumeSourceRules::Own(rbd)),
    ("quobyte", "quobyte", VolumeSourceRules::Shared),
    ("cephfs", "cephFS", VolumeSourceRules::Own(ceph_fs)),
    ("iscsi", "iscsi", VolumeSourceRules::Iscsi),
    ("cinder", "cinder", VolumeSourceRules::Own(cinder)),
    ("fc", "fc", VolumeSourceRules::Shared),
    ("flexVolume", "flexVolume", VolumeSourceRules::Shared),
    ("azureFile", "azureFile", VolumeSourceRules::Own(azure_file)),
    ("vsphereVolume", "vsphereVolume", VolumeSourceRules::Shared),
    ("photonPersistentDisk", "photonPersistentDisk", VolumeSourceRules::Shared),
    ("portworxVolume", "portworxVolume", VolumeSourceRules::Shared),
    ("azureDisk", "azureDisk", VolumeSourceRules::Shared),
    ("scaleIO", "scaleIO", VolumeSourceRules::Shared),
    ("local", "local", VolumeSourceRules::Own(local)),
    ("storageos", "storageos", VolumeSourceRules::Own(storage_os)),
    ("csi", "csi", VolumeSourceRules::Own(csi)),
];

#[derive(Clone, Copy)]
enum VolumeSourceRules {
    /// Uses the rules of the pod volume source.
    Shared,
    Own(fn(&Value, &At<'_>, &mut FieldErrors)),
    Iscsi,
}

fn volume(volume: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = volume_rules(volume, false);
    mount_options(volume, &mut errors);
    errors
}

fn volume_rules(volume: &Value, lenient: bool) -> FieldErrors {
    let mut errors = meta::create(volume, false, names::name_is_dns_subdomain);
    volume_spec(volume.part("spec"), api::meta::name(volume), false, lenient, &SPEC, &mut errors);
    errors
}

/// Rejects the mount options annotation for volume types that do not support it.
fn mount_options(volume: &Value, errors: &mut FieldErrors) {
    const TAKES_OPTIONS: [&str; 13] = [
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    ];
    let spec = volume.part("spec");
    let key = "volume.beta.kubernetes.io/mount-options";
    if TAKES_OPTIONS.iter().all(|source| spec.part(source).is_none())
        && volume.part("metadata").part("annotations").part(key).is_some()
    {
        let at = At::new("metadata.annotations");
        errors.forbidden(&at.field(key), "may not specify mount options for this volume type");
    }
}

/// Validates a volume spec. The inline spec of a VolumeAttachment must omit several fields.
pub(super) fn volume_spec(
    spec: Option<&Value>,
    name: &str,
    is_inline: bool,
    lenient: bool,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let capacity = spec.map_of("capacity").filter(|capacity| !capacity.is_empty());
    if is_inline {
        if spec.part("claimRef").is_some() {
            errors.forbidden(&at.field("claimRef"), INLINE);
        }
        if capacity.is_some() {
            errors.forbidden(&at.field("capacity"), INLINE);
        }
        if spec.part("csi").is_none() {
            errors.required(&at.field("csi"), "has to be specified in the context of inline volumes");
        }
    }
    access_modes(spec, at, errors);
    if !is_inline {
        capacity_rules(spec, capacity, &at.field("capacity"), errors);
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    let policy_at = at.field("persistentVolumeReclaimPolicy");
    if is_inline {
        if !matches!(policy, "" | "Retain") {
            errors.forbidden(&policy_at, "may only be Retain in the context of inline volumes");
        }
    } else if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        errors.not_supported(&policy_at, policy, &["Delete", "Recycle", "Retain"]);
    }
    if let Some(affinity) = spec.part("nodeAffinity") {
        let at = at.field("nodeAffinity");
        if is_inline {
            errors.forbidden(&at, INLINE);
        } else if let Some(required) = affinity.part("required") {
            node_selector(required, lenient, &at.field("required"), errors);
        } else {
            errors.required(&at.field("required"), "must specify required node constraints");
        }
    }
    source_rules(spec, name, is_inline, at, errors);
    class_rules(spec, is_inline, at, errors);
}

fn access_modes(spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let at = at.field("accessModes");
    let modes: Vec<&str> = spec.texts("accessModes").collect();
    if modes.is_empty() {
        errors.required(&at, "");
    }
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(&at, *mode, &ACCESS_MODES);
    }
    let others = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && others {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

fn capacity_rules(spec: Option<&Value>, capacity: Option<&Map>, at: &At<'_>, errors: &mut FieldErrors) {
    if capacity.is_none() {
        errors.required(at, "");
    }
    if capacity.is_none_or(|capacity| !capacity.contains_key("storage") || capacity.len() > 1) {
        let shown = spec.part("capacity").cloned().unwrap_or_default();
        errors.not_supported(at, shown, &["storage"]);
    }
    for (resource, amount) in spec.text_entries("capacity") {
        let Ok(amount) = Quantity::parse(amount) else { continue };
        let here = at.key(resource);
        if amount.value() < 0 {
            errors.invalid(&here, amount.value(), "must be a valid resource quantity");
        }
        if amount.sign() <= 0 {
            errors.invalid(&here, amount.to_string(), "must be greater than zero");
        }
    }
}

fn source_rules(spec: Option<&Value>, name: &str, is_inline: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for (field, second_path, rules) in SOURCES {
        let Some(source) = spec.part(field) else { continue };
        if found && *field != "flexVolume" {
            errors.forbidden(&at.field(second_path), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        match rules {
            VolumeSourceRules::Shared => shared_source(field, source, at, errors),
            VolumeSourceRules::Own(rule) => rule(source, &at.field(field), errors),
            VolumeSourceRules::Iscsi => iscsi(source, name, &at.field(field), errors),
        }
        if *field == "local" && (is_inline || spec.part("nodeAffinity").is_none()) {
            errors.required(&at.field("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if !found {
        errors.required(at, "must specify a volume type");
    }
    if let Some(path) = spec.part("hostPath")
        && is_root(path.text("path"))
        && spec.text("persistentVolumeReclaimPolicy") == "Recycle"
    {
        let at = at.field("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// Returns true if the path resolves to `/`.
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn class_rules(spec: Option<&Value>, is_inline: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        let at = at.field("storageClassName");
        if is_inline {
            errors.forbidden(&at, INLINE);
        } else {
            errors.invalid_each(&at, class, names::is_dns1123_subdomain(class));
        }
    }
    if let Some(mode) = spec.text_if_set("volumeMode") {
        let at = at.field("volumeMode");
        if is_inline {
            if mode != "Filesystem" {
                let detail =
                    "may not specify volumeMode other than Filesystem in the context of inline volumes";
                errors.forbidden(&at, detail);
            }
        } else if !matches!(mode, "Block" | "Filesystem") {
            errors.not_supported(&at, mode, &["Block", "Filesystem"]);
        }
    }
    // kube-apiserver does not enable this feature for inline volumes.
    if let Some(class) = spec.text_if_set("volumeAttributesClassName").filter(|_| !is_inline) {
        let here = at.field("volumeAttributesClassName");
        if class.is_empty() {
            errors.required(&here, "an empty string is disallowed");
        } else {
            errors.invalid_each(&here, class, names::is_dns1123_subdomain(class));
        }
        if spec.part("csi").is_none() {
            errors.required(&at.field("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

fn secret_reference(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(secret) = source.part("secretRef") {
        required_texts(secret, &["name", "namespace"], &at.field("secretRef"), errors);
    }
}

fn glusterfs(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["endpoints", "path"], at, errors);
    if let Some(namespace) = source.text_if_set("endpointsNamespace") {
        let at = at.field("endpointsNamespace");
        if namespace.is_empty() {
            let detail = "if the endpointnamespace is set, it must be a valid namespace name";
            errors.invalid(&at, namespace, detail);
        } else {
            errors.invalid_each(&at, namespace, names::is_dns1123_label(namespace));
        }
    }
}

fn monitors(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if source.items("monitors").is_empty() {
        errors.required(&at.field("monitors"), "");
    }
}

fn rbd(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    monitors(source, at, errors);
    required_texts(source, &["image"], at, errors);
}

fn ceph_fs(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    monitors(source, at, errors);
}

fn iscsi(source: &Value, volume: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let portal = source.text("targetPortal");
    required_texts(source, &["targetPortal"], at, errors);
    let initiator = source.text_if_set("initiatorName");
    if initiator.is_some() && volume.len() + 1 + portal.len() > 64 {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        errors.invalid(&at.field("targetportal"), portal, detail);
    }
    let iqn = source.text("iqn");
    if iqn.is_empty() {
        errors.required(&at.field("iqn"), "");
    } else if !has_iscsi_prefix(iqn) || !is_iscsi_name(iqn) {
        errors.invalid(&at.field("iqn"), iqn, "must be valid format");
    }
    let lun = source.number("lun");
    if !(0..=255).contains(&lun) {
        errors.invalid(&at.field("lun"), lun, names::inclusive_range_error(0, 255));
    }
    let secret = source.part("secretRef");
    if (source.flag("chapAuthDiscovery") || source.flag("chapAuthSession")) && secret.is_none() {
        errors.required(&at.field("secretRef"), "");
    }
    if secret.is_some_and(|secret| secret.text("name").is_empty()) {
        errors.required(&at.field("secretRef.name"), "");
    }
    if let Some(initiator) = initiator
        && (!has_iscsi_prefix(initiator) || !is_iscsi_name(initiator))
    {
        errors.invalid(&at.field("initiatorname"), initiator, "must be valid format");
    }
}

fn cinder(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["volumeID"], at, errors);
    secret_reference(source, at, errors);
}

fn azure_file(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["secretName", "shareName"], at, errors);
    if source.text_if_set("secretNamespace") == Some("") {
        errors.required(&at.field("secretNamespace"), "");
    }
}

fn local(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let path = source.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
    } else {
        no_backsteps(path, &at.field("path"), errors);
    }
}

fn storage_os(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    required_name(source, "volumeName", names::is_dns1123_label, at, errors);
    let namespace = source.text("volumeNamespace");
    if !namespace.is_empty() {
        errors.invalid_each(&at.field("volumeNamespace"), namespace, names::is_dns1123_label(namespace));
    }
    secret_reference(source, at, errors);
}

fn csi(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    csi_driver_name(source.text("driver"), &at.field("driver"), errors);
    required_texts(source, &["volumeHandle"], at, errors);
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = source.part(field) else { continue };
        let here = at.field(field);
        let rules: [(&str, TextRule); 2] =
            [("name", names::is_dns1123_subdomain), ("namespace", names::is_dns1123_label)];
        for (part, rule) in rules {
            required_name(secret, part, rule, &here, errors);
        }
    }
}

fn volume_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let terms = old.part("spec").part("nodeAffinity").part("required");
    let lenient =
        terms.items("nodeSelectorTerms").iter().any(|term| meta::has_invalid_label_value(Some(term)));
    let mut errors = volume_rules(new, lenient);
    mount_options(new, &mut errors);
    errors.extend(volume_rules(new, lenient));
    let mut masked = new.clone();
    let former = old.part("spec");
    if former.part("csi").is_some() && former.part("csi").part("controllerExpandSecretRef").is_none() {
        masked.remove_at(&["spec", "csi", "controllerExpandSecretRef"]);
    }
    let (spec, former) = (masked.part("spec"), former);
    if SOURCES.iter().any(|(field, ..)| !same(spec.part(field), former.part(field))) {
        let diff = unified_diff::unified(
            &internal_json::indented("PersistentVolumeSource", former),
            &internal_json::indented("PersistentVolumeSource", spec),
        );
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        errors.forbidden(&SPEC.field("persistentvolumesource"), detail);
    }
    errors.immutable(&At::new("volumeMode"), spec.part("volumeMode"), former.part("volumeMode"));
    if former.part("nodeAffinity").is_some()
        && !same_but_for_old_labels(spec.part("nodeAffinity"), former.part("nodeAffinity"))
    {
        let shown = internal_json::compact("*VolumeNodeAffinity", spec.part("nodeAffinity"));
        let detail = format!("{shown}: {IMMUTABLE}, except for updating from beta label to GA");
        errors.report(FieldErrorKind::Invalid, &At::new("nodeAffinity"), None, detail);
    }
    let class = "volumeAttributesClassName";
    if former.part(class).is_some() && spec.part(class).is_none() {
        errors.forbidden(&SPEC.field(class), "update from non-nil value to nil is forbidden");
    }
    errors
}

/// Compares node affinities, treating deprecated label keys in `old` as equal to their replacements.
fn same_but_for_old_labels(new: Option<&Value>, old: Option<&Value>) -> bool {
    if same(new, old) {
        return true;
    }
    let terms = |affinity: Option<&Value>| affinity.part("required").items("nodeSelectorTerms").to_vec();
    let (now, before) = (terms(new), terms(old));
    if now.len() != before.len() || new.part("required").is_none() || old.part("required").is_none() {
        return false;
    }
    now.iter().zip(&before).all(|(now, before)| {
        let (requirements, former) = (now.items("matchExpressions"), before.items("matchExpressions"));
        same(now.part("matchFields"), before.part("matchFields"))
            && requirements.len() == former.len()
            && requirements.iter().zip(former).all(|(now, before)| {
                let is_renamed = renamed_label(before.text("key")) == Some(now.text("key"));
                (now.text("key") == before.text("key") || is_renamed)
                    && now.text("operator") == before.text("operator")
                    && same(now.part("values"), before.part("values"))
            })
    })
}

fn renamed_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/os" => "kubernetes.io/os",
        "beta.kubernetes.io/arch" => "kubernetes.io/arch",
        _ => return None,
    })
}

fn volume_status_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    if api::meta::resource_version(new).is_empty() {
        errors.required(&At::new("resourceVersion"), "");
    }
    errors
}
