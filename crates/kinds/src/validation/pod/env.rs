//! Validation of environment variables, and of field references, which volumes use too.

use api::validation::fields::{At, Read, Report};
use api::validation::repeated::last_by;
use api::{FieldErrors, names, quantity::Quantity};
use value::Value;

use super::volume_paths::no_backsteps;
use crate::validation::required_name;

const POD_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const HUGE_PAGES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];

pub(in crate::validation) fn env(container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("env");
    for (i, variable) in container.items("env").iter().enumerate() {
        let at = list.index(i);
        required_name(variable, "name", names::is_relaxed_env_var_name, &at, errors);
        if let Some(source) = variable.part("valueFrom") {
            value_from(source, variable.text("value"), &at.field("valueFrom"), errors);
        }
    }
}

fn value_from(source: &Value, value: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let mut count = 0;
    if let Some(field) = source.part("fieldRef") {
        count += 1;
        field_ref(field, POD_FIELDS, &at.field("fieldRef"), errors);
    }
    if let Some(resource) = source.part("resourceFieldRef") {
        count += 1;
        resource_field_ref(resource, false, &at.field("resourceFieldRef"), errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = source.part(field) {
            count += 1;
            key_ref(reference, &at.field(field), errors);
        }
    }
    if let Some(file) = source.part("fileKeyRef") {
        count += 1;
        file_key_ref(file, &at.field("fileKeyRef"), errors);
    }
    if count == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(at, "", detail);
    } else if !value.is_empty() {
        errors.invalid(at, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(at, "", "may not have more than one field specified at a time");
    }
}

fn key_ref(reference: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let name = reference.text("name");
    errors.invalid_each(&at.field("name"), name, names::name_is_dns_subdomain(name, false));
    required_name(reference, "key", names::is_config_map_key, at, errors);
}

fn file_key_ref(file: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    required_name(file, "key", names::is_relaxed_env_var_name, at, errors);
    required_name(file, "volumeName", names::is_dns1123_label, at, errors);
    let path = file.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
    } else {
        no_backsteps(path, &at.field("path"), errors);
    }
}

/// Validates a reference to a field of the pod. `known` lists the allowed fields, sorted.
pub(in crate::validation) fn field_ref(
    reference: &Value,
    known: &[&str],
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let version = reference.text("apiVersion");
    if version.is_empty() {
        errors.required(&at.field("apiVersion"), "");
        return;
    }
    let field = reference.text("fieldPath");
    if field.is_empty() {
        errors.required(&at.field("fieldPath"), "");
        return;
    }
    let subscripted = split_subscript(field);
    match canonical_field(version, field, subscripted) {
        Err(why) => {
            let detail = format!("error converting fieldPath: {why}");
            errors.invalid(&at.field("fieldPath"), field, detail);
        }
        Ok(canonical) => match subscripted {
            Some(("metadata.annotations", key)) => {
                let key = key.to_lowercase();
                errors.invalid_each(at, &key, names::is_qualified_name(&key));
            }
            Some((_, key)) => errors.invalid_each(at, key, names::is_qualified_name(key)),
            None if !known.contains(&canonical) => {
                errors.not_supported(&at.field("fieldPath"), canonical, known);
            }
            None => {}
        },
    }
}

/// Splits `metadata.labels['key']` into `metadata.labels` and `key`.
fn split_subscript(field: &str) -> Option<(&str, &str)> {
    field.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

fn canonical_field<'a>(
    version: &str,
    field: &'a str,
    subscripted: Option<(&str, &str)>,
) -> Result<&'a str, String> {
    if version != "v1" {
        return Err(format!("unsupported pod version: {version}"));
    }
    match (subscripted, field) {
        (Some((path, _)), _) if !matches!(path, "metadata.annotations" | "metadata.labels") => {
            Err(format!("field label does not support subscript: {field}"))
        }
        // Old alias of `spec.nodeName`.
        (None, "spec.host") => Ok("spec.nodeName"),
        (Some(_), _)
        | (
            None,
            "metadata.annotations"
            | "metadata.labels"
            | "metadata.name"
            | "metadata.namespace"
            | "metadata.uid"
            | "spec.nodeName"
            | "spec.restartPolicy"
            | "spec.serviceAccountName"
            | "spec.schedulerName"
            | "status.phase"
            | "status.hostIP"
            | "status.hostIPs"
            | "status.podIP"
            | "status.podIPs",
        ) => Ok(field),
        (None, _) => Err(format!("field label not supported: {field}")),
    }
}

/// Validates a reference to a container's resources. In a volume it must name the container.
pub(in crate::validation) fn resource_field_ref(
    reference: &Value,
    in_volume: bool,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let resource = reference.text("resource");
    let is_huge = HUGE_PAGES.iter().any(|prefix| resource.starts_with(prefix));
    if in_volume && reference.text("containerName").is_empty() {
        errors.required(&at.field("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&at.field("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge {
        errors.not_supported(&at.field("resource"), resource, RESOURCES);
    }
    divisor(reference, resource, is_huge, &at.field("divisor"), errors);
}

fn divisor(reference: &Value, resource: &str, is_huge: bool, at: &At<'_>, errors: &mut FieldErrors) {
    const SIZES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let Ok(quantity) = Quantity::parse(reference.text_if_set("divisor").unwrap_or("0")) else { return };
    if quantity.is_zero() {
        return;
    }
    let divisor = quantity.canonical();
    let is_size = || SIZES.split(", ").any(|size| size == divisor);
    let what = match resource {
        "limits.cpu" | "requests.cpu" => {
            if !matches!(divisor.as_str(), "1" | "1m") {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.invalid(at, resource, detail);
            }
            return;
        }
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if is_huge => "hugepages",
        _ => return,
    };
    if !is_size() {
        let detail = format!("only divisor's values {SIZES} are supported with the {what} resource");
        errors.invalid(at, resource, detail);
    }
}

pub(in crate::validation) fn env_from(container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("envFrom");
    for (i, source) in container.items("envFrom").iter().enumerate() {
        let at = list.index(i);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.invalid_each(&at.field("prefix"), prefix, names::is_relaxed_env_var_name(prefix));
        }
        let mut count = 0;
        for field in ["configMapRef", "secretRef"] {
            let Some(reference) = source.part(field) else { continue };
            count += 1;
            let at = at.field(field);
            let name = reference.text("name");
            if name.is_empty() {
                errors.required(&at.field("name"), "");
            } else {
                errors.invalid_each(&at.field("name"), name, names::name_is_dns_subdomain(name, true));
            }
        }
        if count == 0 {
            errors.invalid(&list, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if count > 1 {
            errors.invalid(&list, "", "may not have more than one field specified at a time");
        }
    }
}

/// Checks that the volumes of `fileKeyRef` variables exist and are `emptyDir` volumes.
pub(in crate::validation) fn file_key_volumes(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    // If several volumes have the same name, the last one wins.
    let volumes = last_by(spec.items("volumes"), "name");
    crate::pod_containers::visit_containers(spec, at, |container, at| {
        let list = at.field("env");
        for (i, variable) in container.items("env").iter().enumerate() {
            let Some(file) = variable.part("valueFrom").part("fileKeyRef") else { continue };
            let name = file.text("volumeName");
            let at = list.index(i);
            let at = at.field("valueFrom.fileKeyRef.volumeName");
            match volumes.get(name) {
                None => errors.not_found(&at, name),
                Some(volume) if volume.part("emptyDir").is_none() => {
                    errors.invalid(&at, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
