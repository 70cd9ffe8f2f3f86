//! The rules of every volume source except `emptyDir` and `projected`.

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::Value;

use super::user_ids::optional_id;
use super::volume_paths::{descending_path, local_path, no_backsteps};
use super::volumes::Volume;
use super::{claims, containers, env};
use crate::validation::{optional_value, required_texts};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MAX_FILE_MODE: i64 = 0o777;

fn secret_ref(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if source.part("secretRef").is_some_and(|secret| secret.text("name").is_empty()) {
        errors.required(&at.field("secretRef.name"), "");
    }
}

pub(super) fn host_path(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let path = source.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
        return;
    }
    no_backsteps(path, &at.field("path"), errors);
    optional_value(source, "type", &TYPES, at, errors);
}

pub(super) fn git_repo(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["repository"], at, errors);
    descending_path(source.text("directory"), &at.field("directory"), errors);
}

pub(super) fn gce_disk(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["pdName"], at, errors);
    partition(source, at, errors);
}

pub(super) fn aws_disk(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["volumeID"], at, errors);
    partition(source, at, errors);
}

fn partition(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let partition = source.number("partition");
    if !(0..=255).contains(&partition) {
        errors.invalid(&at.field("partition"), partition, names::inclusive_range_error(1, 255));
    }
}

pub(super) fn secret(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["secretName"], at, errors);
    default_mode(source, at, errors);
    keys_to_paths(source, at, errors);
}

pub(super) fn config_map(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["name"], at, errors);
    default_mode(source, at, errors);
    keys_to_paths(source, at, errors);
}

/// Validates the mode and user of a source's files.
pub(in crate::validation) fn default_mode(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    file_mode(source, "defaultMode", at, errors);
    optional_id(source, "defaultUser", at, errors);
}

fn file_mode(source: &Value, field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(mode) = source.number_if_set(field)
        && !(0..=MAX_FILE_MODE).contains(&mode)
    {
        errors.invalid(&at.field(field), mode, FILE_MODE);
    }
}

fn keys_to_paths(source: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let at = at.field("items");
    for (i, item) in source.items("items").iter().enumerate() {
        key_to_path(item, &at.index(i), errors);
    }
}

/// Validates the mapping of one key of a Secret or ConfigMap to a file.
pub(in crate::validation) fn key_to_path(item: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(item, &["key", "path"], at, errors);
    local_path(item.text("path"), &at.field("path"), errors);
    file_mode(item, "mode", at, errors);
    optional_id(item, "user", at, errors);
}

pub(super) fn nfs(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["server", "path"], at, errors);
    let path = source.text("path");
    if !path.starts_with('/') {
        errors.invalid(&at.field("path"), path, "must be an absolute path");
    }
}

pub(super) fn iscsi(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    const UNKNOWN: &str = "must be valid format starting with iqn, eui, or naa";
    required_texts(source, &["targetPortal", "iqn"], at, errors);
    let iqn = source.text("iqn");
    if !iqn.is_empty() {
        if !has_iscsi_prefix(iqn) {
            errors.invalid(&at.field("iqn"), iqn, UNKNOWN);
        } else if !is_iscsi_name(iqn) {
            errors.invalid(&at.field("iqn"), iqn, "must be valid format");
        }
    }
    let lun = source.number("lun");
    if !(0..=255).contains(&lun) {
        errors.invalid(&at.field("lun"), lun, names::inclusive_range_error(0, 255));
    }
    if (source.flag("chapAuthDiscovery") || source.flag("chapAuthSession"))
        && source.part("secretRef").is_none()
    {
        errors.required(&at.field("secretRef"), "");
    }
    if let Some(initiator) = source.text_if_set("initiatorName") {
        if !has_iscsi_prefix(initiator) {
            errors.invalid(&at.field("initiatorname"), initiator, UNKNOWN);
        } else if !is_iscsi_name(initiator) {
            errors.invalid(&at.field("initiatorname"), initiator, "must be valid format");
        }
    }
}

/// Returns true if an iSCSI name has one of the three known prefixes.
pub(in crate::validation) fn has_iscsi_prefix(name: &str) -> bool {
    ["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix))
}

/// Returns true if an iSCSI name has the format that its prefix requires.
pub(in crate::validation) fn is_iscsi_name(name: &str) -> bool {
    let is_alnum = |s: &str| s.chars().all(|c| c.is_ascii_alphanumeric());
    // `eui` and `naa` are followed by one arbitrary character and a fixed number of alphanumeric ones.
    let fixed = |rest: &str, length: usize| {
        let mut rest = rest.chars();
        rest.next().is_some_and(|c| c != '\n') && rest.as_str().len() == length && is_alnum(rest.as_str())
    };
    if let Some(rest) = name.strip_prefix("eui") {
        return fixed(rest, 16);
    }
    if let Some(rest) = name.strip_prefix("naa") {
        return fixed(rest, 32);
    }
    name.match_indices("iqn.").any(|(start, _)| {
        let Some(rest) = name.get(start + 4..) else { return false };
        let (Some(date), Some(authority)) = (rest.get(..8), rest.get(8..)) else { return false };
        let is_date = date
            .bytes()
            .zip(*b"dddd-dd.")
            .all(|(b, form)| if form == b'd' { b.is_ascii_digit() } else { b == form });
        is_date
            && authority.split_once(':').is_some_and(|(authority, unique)| {
                !authority.is_empty()
                    && authority.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
                    && !unique.is_empty()
                    && !unique.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\x0c'])
            })
    })
}

pub(super) fn glusterfs(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["endpoints", "path"], at, errors);
}

pub(super) fn flocker(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let (name, uuid) = (source.text("datasetName"), source.text("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(at, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errors.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errors.invalid(&at.field("datasetName"), name, "must not contain '/'");
    }
}

pub(super) fn claim(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["claimName"], at, errors);
}

pub(super) fn rbd(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    if source.items("monitors").is_empty() {
        errors.required(&at.field("monitors"), "");
    }
    required_texts(source, &["image"], at, errors);
}

pub(super) fn cinder(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["volumeID"], at, errors);
    secret_ref(source, at, errors);
}

pub(super) fn ceph_fs(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    if source.items("monitors").is_empty() {
        errors.required(&at.field("monitors"), "");
    }
}

pub(super) fn quobyte(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.text("registry");
    if registry.is_empty() {
        errors.required(&at.field("registry"), PAIRS);
    } else if source.text("tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&at.field("tenant"), detail);
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&at.field("registry"), registry, PAIRS);
        }
    }
    required_texts(source, &["volume"], at, errors);
}

/// Follows Go's `net.SplitHostPort`: the port may be empty, and an IPv6 host needs brackets.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    match host.strip_prefix('[') {
        Some(inside) => {
            inside.strip_suffix(']').is_some_and(|inside| !inside.contains(['[', ']']))
                && !port.contains([']', '['])
        }
        None => !text.contains(['[', ']']) && !host.contains(':'),
    }
}

pub(super) fn downward_api(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    default_mode(source, at, errors);
    for file in source.items("items") {
        downward_file(file, at, errors);
    }
}

/// Validates one file of the downward API.
pub(in crate::validation) fn downward_file(file: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const FIELDS: &[&str] =
        &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
    required_texts(file, &["path"], at, errors);
    local_path(file.text("path"), &at.field("path"), errors);
    if let Some(field) = file.part("fieldRef") {
        env::field_ref(field, FIELDS, &at.field("fieldRef"), errors);
        if file.part("resourceFieldRef").is_some() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(at, "resource", detail);
        }
    } else if let Some(resource) = file.part("resourceFieldRef") {
        env::resource_field_ref(resource, true, &at.field("resourceFieldRef"), errors);
    } else {
        errors.required(at, "one of fieldRef and resourceFieldRef is required");
    }
    file_mode(file, "mode", at, errors);
    optional_id(file, "user", at, errors);
}

pub(super) fn fibre_channel(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let names_ports = !source.items("targetWWNs").is_empty();
    let names_volumes = !source.items("wwids").is_empty();
    if !names_ports && !names_volumes {
        let detail = "must specify either targetWWNs or wwids, but not both";
        errors.required(&at.field("targetWWNs"), detail);
    }
    if names_ports && names_volumes {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at.field("targetWWNs"), source.items("targetWWNs").to_vec(), detail);
    }
    if names_ports {
        match source.number_if_set("lun") {
            None => errors.required(&at.field("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) if !(0..=255).contains(&lun) => {
                errors.invalid(&at.field("lun"), lun, names::inclusive_range_error(0, 255));
            }
            Some(_) => {}
        }
    }
}

pub(super) fn flex_volume(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["driver"], at, errors);
    for (key, _) in source.entries("options") {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace).to_lowercase();
        let reserved = |domain: &str| {
            namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if reserved("kubernetes.io") || reserved("k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&at.field("options").key(key), key, detail);
        }
    }
}

pub(super) fn azure_file(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["secretName", "shareName"], at, errors);
}

pub(super) fn vsphere(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["volumePath"], at, errors);
}

pub(super) fn photon_disk(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["pdID"], at, errors);
}

pub(super) fn portworx(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["volumeID"], at, errors);
}

pub(super) fn azure_disk(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    required_texts(source, &["diskName", "diskURI"], at, errors);
    optional_value(source, "cachingMode", &CACHING, at, errors);
    let kind = source.text_if_set("kind");
    if let Some(kind) = kind.filter(|kind| !KINDS.contains(kind)) {
        errors.not_supported(&at.field("kind"), kind, &KINDS);
    }
    let uri = source.text("diskURI");
    match kind {
        Some("Managed") if !uri.starts_with("/subscriptions/") => {
            errors.not_supported(&at.field("diskURI"), uri, &[MANAGED]);
        }
        Some("Managed") | None => {}
        Some(_) if !uri.starts_with("https://") => errors.not_supported(&at.field("diskURI"), uri, &[BLOB]),
        Some(_) => {}
    }
}

pub(super) fn storage_os(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["volumeName"], at, errors);
    for field in ["volumeName", "volumeNamespace"] {
        let name = source.text(field);
        if !name.is_empty() {
            errors.invalid_each(&at.field(field), name, names::is_dns1123_label(name));
        }
    }
    secret_ref(source, at, errors);
}

pub(super) fn scale_io(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_texts(source, &["gateway", "system", "volumeName"], at, errors);
}

pub(super) fn csi(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    csi_driver_name(source.text("driver"), &at.field("driver"), errors);
    if let Some(secret) = source.part("nodePublishSecretRef") {
        let name = secret.text("name");
        if name.is_empty() {
            errors.required(&at.field("nodePublishSecretRef.name"), "");
        } else {
            errors.invalid_each(&at.field("name"), name, names::name_is_dns_subdomain(name, false));
        }
    }
}

pub(crate) fn csi_driver_name(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    const MAX: usize = 63;
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    if name.len() > MAX {
        errors.too_long(at, MAX);
    }
    errors.invalid_each(at, name, names::is_dns1123_subdomain(&name.to_lowercase()));
}

pub(super) fn ephemeral(source: &Value, _: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let at = at.field("volumeClaimTemplate");
    match source.part("volumeClaimTemplate") {
        None => errors.required(&at, ""),
        Some(template) => {
            claims::template_metadata(template.part("metadata"), &at.field("metadata"), errors);
            claims::claim_spec(template.part("spec"), false, &at.field("spec"), errors);
        }
    }
}

pub(super) fn image(source: &Value, volume: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    if !volume.options.empty_image_reference {
        required_texts(source, &["reference"], at, errors);
    }
    containers::pull_policy(source.text("pullPolicy"), &at.field("pullPolicy"), errors);
}
