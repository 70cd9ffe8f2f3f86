//! Validation of the security contexts of pods and containers.

use api::FieldErrors;
use api::validation::fields::{At, Read, Report};
use value::Value;

use super::options::PodValidationOptions;
use super::sysctls::sysctls;
use super::user_ids::{optional_id, user_or_group_id};
use super::volume_paths::descending_path;
use super::windows::windows_options;
use crate::validation::{internal_json, optional_value};

const MAX_LOCALHOST_PROFILE: usize = 4095;

/// Validates the security context of a pod or template.
pub(in crate::validation) fn pod(
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let Some(context) = spec.part("securityContext") else { return };
    let at = at.field("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        optional_id(context, field, &at, errors);
    }
    let groups = at.field("supplementalGroups");
    for (i, group) in context.items("supplementalGroups").iter().enumerate() {
        user_or_group_id(group.as_int().unwrap_or_default(), &groups.index(i), errors);
    }
    sysctls(context, spec, options, &at.field("sysctls"), errors);
    optional_value(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &at, errors);
    seccomp_profile(context, &at, errors);
    windows_options(context, &at, errors);
    app_armor_profile(context, &at, errors);
    optional_value(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &at, errors);
    optional_value(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], &at, errors);
}

/// Validates the security context of a container.
pub(in crate::validation) fn container(
    context: &Value,
    host_users: bool,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let privileged = context.flag("privileged");
    if privileged && !options.allow_privileged {
        errors.forbidden(&at.field("privileged"), "disallowed by cluster policy");
    }
    optional_id(context, "runAsUser", at, errors);
    optional_id(context, "runAsGroup", at, errors);
    if let Some(mount) = context.text_if_set("procMount") {
        optional_value(context, "procMount", &["Default", "Unmasked"], at, errors);
        if host_users && mount == "Unmasked" {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.invalid(&at.field("procMount"), mount, detail);
        }
    }
    seccomp_profile(context, at, errors);
    if context.flag_if_set("allowPrivilegeEscalation") == Some(false) {
        let json = || internal_json::compact("SecurityContext", Some(context));
        if privileged {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid_json(at, &json(), detail);
        }
        let added = context.part("capabilities").map(|capabilities| capabilities.items("add"));
        let sys_admin =
            added.unwrap_or_default().iter().filter(|added| added.as_str() == Some("CAP_SYS_ADMIN"));
        if !options.sys_admin_without_escalation {
            for _ in sys_admin {
                let detail =
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
                errors.invalid_json(at, &json(), detail);
            }
        }
    }
    windows_options(context, at, errors);
    app_armor_profile(context, at, errors);
}

fn seccomp_profile(context: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(profile) = context.part("seccompProfile") else { return };
    let at = at.field("seccompProfile");
    let kind = profile.text("type");
    match kind {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&at.field("type"), "type is required when seccompProfile is set"),
        other => {
            errors.not_supported(&at.field("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]);
        }
    }
    let file_at = at.field("localhostProfile");
    match (kind, profile.text_if_set("localhostProfile")) {
        ("Localhost", None) => errors.required(&file_at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => descending_path(file, &file_at, errors),
        (_, Some(_)) => {
            let json = internal_json::compact("SeccompProfile", Some(profile));
            errors.invalid_json(&file_at, &json, "can only be set when seccomp type is Localhost");
        }
        (_, None) => {}
    }
}

fn app_armor_profile(context: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(profile) = context.part("appArmorProfile") else { return };
    let at = at.field("appArmorProfile");
    let file = profile.text_if_set("localhostProfile");
    let file_at = at.field("localhostProfile");
    match profile.text("type") {
        "Localhost" => match file {
            None => errors.required(&file_at, "must be set when AppArmor type is Localhost"),
            Some(file) => {
                if file.trim() != file {
                    errors.invalid(&file_at, file, "must not be padded with whitespace");
                } else if file.is_empty() {
                    errors.required(&file_at, "must be set when AppArmor type is Localhost");
                }
                if file.len() > MAX_LOCALHOST_PROFILE {
                    errors.too_long(&file_at, MAX_LOCALHOST_PROFILE);
                }
            }
        },
        "RuntimeDefault" | "Unconfined" => {
            if let Some(file) = file {
                errors.invalid(&file_at, file, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(&at.field("type"), "type is required when appArmorProfile is set"),
        other => {
            errors.not_supported(&at.field("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]);
        }
    }
}
