//! Rejects fields that do not apply to the operating system in `spec.os`.

use api::FieldErrors;
use api::validation::fields::{At, Read, Report};
use value::Value;

use crate::pod_containers::visit_containers;

/// Rejects fields that do not apply to the pod's operating system.
pub(in crate::validation) fn operating_system(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(os) = spec.part("os") else { return };
    match os.text("name") {
        "" => errors.required(&at.field("os.name"), ""),
        "linux" => linux(spec, at, errors),
        "windows" => windows(spec, at, errors),
        other => errors.not_supported(&at.field("os"), other, &["linux", "windows"]),
    }
}

fn linux(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let has = |holder: &Value| holder.part("securityContext").part("windowsOptions").is_some();
    if has(spec) {
        errors.forbidden(&at.field("securityContext.windowsOptions"), DETAIL);
    }
    visit_containers(spec, at, |container, at| {
        if has(container) {
            errors.forbidden(&at.field("securityContext.windowsOptions"), DETAIL);
        }
    });
}

fn windows(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    const DETAIL: &str = "cannot be set for a windows pod";
    fn refuse(context: Option<&Value>, fields: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
        for field in fields {
            let is_empty_list = *field == "sysctls" && context.items(field).is_empty();
            if context.part(field).is_some() && !is_empty_list {
                errors.forbidden(&at.field(field), DETAIL);
            }
        }
    }
    refuse(spec.part("securityContext"), &POD, &at.field("securityContext"), errors);
    for field in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
        let is_set = match field {
            "hostPID" | "hostIPC" => spec.flag(field),
            _ => spec.part(field).is_some(),
        };
        if is_set {
            errors.forbidden(&at.field(field), DETAIL);
        }
    }
    visit_containers(spec, at, |container, at| {
        refuse(container.part("securityContext"), &CONTAINER, &at.field("securityContext"), errors);
    });
}
