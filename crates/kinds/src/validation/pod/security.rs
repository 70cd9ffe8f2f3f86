//! Validation of security contexts and of the annotations that preceded them.

use std::collections::HashSet;

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::{Value, write};

use super::options::{PodValidationOptions, containers, visit_containers};
use super::scheduling;
use super::volumes::descending_path;
use crate::validation::internal_json;

const MIRROR_POD: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
pub(in crate::validation) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(in crate::validation) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(in crate::validation) const APP_ARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";

const MAX_LOCALHOST_PROFILE: usize = 4095;
const MAX_SYSCTL: usize = 253;
const MAX_CREDENTIAL_SPEC: usize = 64 << 10;
const MAX_USER_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

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
        id(context, field, &at, errors);
    }
    let groups = at.field("supplementalGroups");
    for (i, group) in context.items("supplementalGroups").iter().enumerate() {
        let group = group.as_int().unwrap_or_default();
        for message in names::is_valid_user_id(group) {
            errors.invalid(&groups.index(i), group, message);
        }
    }
    sysctls(context, spec, options, &at.field("sysctls"), errors);
    one_of(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &at, errors);
    seccomp_profile(context, &at, errors);
    windows_options(context, &at, errors);
    app_armor_profile(context, &at, errors);
    one_of(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &at, errors);
    one_of(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], &at, errors);
}

fn id(context: &Value, field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(id) = context.number_if_set(field) {
        for message in names::is_valid_user_id(id) {
            errors.invalid(&at.field(field), id, message);
        }
    }
}

fn one_of(context: &Value, field: &str, known: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(value) = context.text_if_set(field).filter(|value| !known.contains(value)) {
        errors.not_supported(&at.field(field), value, known);
    }
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
    id(context, "runAsUser", at, errors);
    id(context, "runAsGroup", at, errors);
    if let Some(mount) = context.text_if_set("procMount") {
        one_of(context, "procMount", &["Default", "Unmasked"], at, errors);
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

fn sysctls(
    context: &Value,
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, sysctl) in context.items("sysctls").iter().enumerate() {
        let at = at.index(i);
        let at = at.field("name");
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if !is_sysctl(name) {
            let detail = format!(
                "must have at most {MAX_SYSCTL} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            errors.invalid(&at, name, detail);
        } else if seen.contains(name) {
            errors.duplicate(&at, name);
        }
        if !options.host_sysctls
            && let Some(detail) = host_sysctl(name, spec)
        {
            errors.invalid(&at, name, detail);
        }
        seen.insert(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= MAX_SYSCTL
        && name.split(['.', '/']).all(|part| {
            part.starts_with(is_word)
                && part.ends_with(is_word)
                && part.chars().all(|c| is_word(c) || c == '-' || c == '_')
        })
}

/// Returns the error for a sysctl of a namespace that the pod shares with its host.
pub(in crate::validation) fn host_sysctl(name: &str, spec: &Value) -> Option<&'static str> {
    // In a name whose first separator is a slash, slashes and dots are swapped.
    let normal: String = match name.find(['.', '/']).and_then(|at| name.get(at..=at)) {
        Some("/") => name
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    };
    let normal = normal.split('*').next().unwrap_or_default();
    let is_ipc = matches!(
        normal,
        "kernel.sem"
            | "kernel.shmall"
            | "kernel.shmmax"
            | "kernel.shmmni"
            | "kernel.shm_rmid_forced"
            | "kernel.shm"
            | "kernel.msgmax"
            | "kernel.msgmnb"
            | "kernel.msgmni"
            | "kernel.msg"
    ) || normal.starts_with("fs.mqueue.");
    if spec.flag("hostNetwork") && normal.starts_with("net.") {
        return Some("may not be specified when 'hostNetwork' is true");
    }
    (spec.flag("hostIPC") && is_ipc).then_some("may not be specified when 'hostIPC' is true")
}

fn windows_options(context: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(options) = context.part("windowsOptions") else { return };
    let at = at.field("windowsOptions");
    if let Some(name) = options.text_if_set("gmsaCredentialSpecName") {
        errors.invalid_each(&at.field("gmsaCredentialSpecName"), name, names::is_dns1123_subdomain(name));
    }
    if let Some(spec) = options.text_if_set("gmsaCredentialSpec") {
        let at = at.field("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > MAX_CREDENTIAL_SPEC {
            errors.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.text_if_set("runAsUserName") {
        windows_user(name, &at.field("runAsUserName"), errors);
    }
}

/// kube-apiserver prints this name as JSON, which escapes characters differently from a quoted string.
fn windows_user(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let json = write::to_string(&name.into());
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        _ if name.is_empty() => {
            return errors.invalid_json(at, &json, "runAsUserName cannot be an empty string");
        }
        _ if name.contains(|c: char| c.is_ascii_control()) => {
            return errors.invalid_json(at, &json, "runAsUserName cannot contain control characters");
        }
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return errors.invalid_json(at, &json, "runAsUserName cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= MAX_USER_DOMAIN) {
        let detail = format!("runAsUserName's Domain length must be under {MAX_USER_DOMAIN} characters");
        errors.invalid_json(at, &json, &detail);
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_windows_dns(domain)) {
        let detail = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
        errors.invalid_json(at, &json, detail);
    }
    if user.is_empty() {
        errors.invalid_json(at, &json, "runAsUserName's User cannot be empty");
    } else if user.len() > MAX_USER {
        let detail = format!("runAsUserName's User length must not be longer than {MAX_USER} characters");
        errors.invalid_json(at, &json, &detail);
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        errors.invalid_json(at, &json, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let detail = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        errors.invalid_json(at, &json, detail);
    }
}

fn is_net_bios(domain: &str) -> bool {
    let allowed = |c: char| !matches!(c, '\\' | '/' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    !domain.is_empty()
        && domain.chars().count() <= 15
        && !domain.starts_with('.')
        && domain.chars().all(allowed)
}

fn is_windows_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let is_word = |c: char| c.is_ascii_alphanumeric();
        label.len() <= 63
            && label.starts_with(is_word)
            && label.ends_with(is_word)
            && label.chars().all(|c| is_word(c) || c == '-')
    })
}

/// Validates Windows `hostProcess` containers of a pod.
pub(in crate::validation) fn host_processes(
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let host_process = |holder: &Value| {
        holder.part("securityContext").part("windowsOptions").and_then(|o| o.flag_if_set("hostProcess"))
    };
    let pod = host_process(spec);
    let (mut count, mut on_host) = (0, 0);
    visit_containers(spec, at, |container, at| {
        count += 1;
        let own = host_process(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&at.field("securityContext.windowsOptions.hostProcess"), own, detail);
        }
        if own.or(pod) == Some(true) {
            on_host += 1;
        }
    });
    if on_host == 0 {
        return;
    }
    if on_host != count {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(at, "", detail);
    }
    if !spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&at.field("hostNetwork"), false, detail);
    }
    if !options.allow_privileged {
        errors.forbidden(at, "hostProcess containers are disallowed by cluster policy");
    }
}

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

/// Validates the well-known annotations of a pod or template. `at` is the path of the annotations.
pub(in crate::validation) fn annotations(
    metadata: Option<&Value>,
    spec: Option<&Value>,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let annotations = metadata.part("annotations");
    if let Some(mirror) = annotations.text_if_set(MIRROR_POD)
        && spec.text("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&at.key(MIRROR_POD), mirror, detail);
    }
    let tolerations = annotations.text(TOLERATIONS);
    if !tolerations.is_empty() {
        annotated_tolerations(tolerations, options, at, errors);
    }
    if !options.invalid_deletion_cost && !is_deletion_cost_valid(annotations) {
        let cost = annotations.text(DELETION_COST);
        errors.invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    if let Some(profile) = annotations.text_if_set(SECCOMP_POD) {
        seccomp_annotation(profile, &at.field(SECCOMP_POD), errors);
    }
    for (key, profile) in metadata.text_entries("annotations") {
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp_annotation(profile, &at.field(key), errors);
        }
    }
    let container_names: HashSet<&str> =
        spec.into_iter().flat_map(containers).map(|container| container.text("name")).collect();
    for (key, profile) in metadata.text_entries("annotations") {
        let Some(name) = key.strip_prefix(APP_ARMOR_CONTAINER) else { continue };
        if !container_names.contains(name) {
            errors.invalid(&at.key(key), name, "container not found");
        }
        let is_profile = matches!(profile, "" | "runtime/default" | "unconfined");
        if !is_profile && !profile.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {}", api::field::quote(profile));
            errors.invalid(&at.key(key), profile, detail);
        }
    }
}

fn annotated_tolerations(text: &str, options: &PodValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    match value::json::parse(text.as_bytes()) {
        Ok(parsed) => {
            // kube-apiserver decodes its internal type here, whose field names match without regard to case.
            let list: Vec<Value> = parsed.as_list().map(<[Value]>::to_vec).unwrap_or_default();
            scheduling::toleration_list(&list, options, &at.field(TOLERATIONS), errors);
        }
        Err(error) => errors.invalid(at, TOLERATIONS, error.to_string()),
    }
}

/// Returns true if the pod deletion cost is absent or a 32-bit integer without a plus sign or leading zero.
pub(in crate::validation) fn is_deletion_cost_valid(annotations: Option<&Value>) -> bool {
    let Some(cost) = annotations.text_if_set(DELETION_COST) else { return true };
    let plain = cost.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']) || cost == "0";
    plain && cost.parse::<i32>().is_ok()
}

fn seccomp_annotation(profile: &str, at: &At<'_>, errors: &mut FieldErrors) {
    match profile.strip_prefix("localhost/") {
        _ if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        Some(file) => descending_path(file, at, errors),
        None => errors.invalid(at, profile, "must be a valid seccomp profile"),
    }
}

/// Checks that seccomp annotations and fields agree where both exist.
pub(in crate::validation) fn seccomp_annotations_match(
    metadata: Option<&Value>,
    spec: &Value,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let annotations = metadata.part("annotations");
    if let Some(annotation) = annotations.text_if_set(SECCOMP_POD)
        && let Some(profile) = spec.part("securityContext").part("seccompProfile")
    {
        let at = at.field("securityContext.seccompProfile");
        profile_matches("seccomp", annotation, profile, &at, errors);
    }
    visit_containers(spec, at, |container, at| {
        let Some(profile) = container.part("securityContext").part("seccompProfile") else { return };
        let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
        if let Some(annotation) = annotations.text_if_set(&key) {
            let at = at.field("securityContext.seccompProfile");
            profile_matches("seccomp", annotation, profile, &at, errors);
        }
    });
}

/// Checks that AppArmor annotations and fields agree where both exist.
pub(in crate::validation) fn app_armor_annotations_match(
    metadata: Option<&Value>,
    spec: &Value,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if spec.part("os").text("name") == "windows" {
        return;
    }
    let annotations = metadata.part("annotations");
    let context = spec.part("securityContext");
    let pod_profile = context.part("appArmorProfile");
    visit_containers(spec, at, |container, at| {
        let own = container.part("securityContext").and_then(|context| context.part("appArmorProfile"));
        let Some(profile) = own.or(pod_profile) else { return };
        let key = format!("{APP_ARMOR_CONTAINER}{}", container.text("name"));
        if let Some(annotation) = annotations.text_if_set(&key) {
            let at = at.field("securityContext.appArmorProfile");
            profile_matches("apparmor", annotation, profile, &at, errors);
        }
    });
}

fn profile_matches(what: &str, annotation: &str, profile: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let same_type = match profile.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !same_type {
        errors.forbidden(&at.field("type"), format!("{what} type in annotation and field must match"));
    } else if profile.text("type") == "Localhost"
        && profile.text_if_set("localhostProfile") != annotation.strip_prefix("localhost/")
    {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(&at.field("localhostProfile"), detail);
    }
}

/// Rejects changes of immutable annotations of a pod.
pub(in crate::validation) fn annotation_changes(
    new: Option<&Value>,
    old: Option<&Value>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let (new_map, old_map) = (new.part("annotations"), old.part("annotations"));
    for (key, value) in old.text_entries("annotations") {
        if new_map.text_if_set(key) == Some(value) {
            continue;
        }
        if key.starts_with(APP_ARMOR_CONTAINER) {
            errors.forbidden(&at.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR_POD {
            errors.forbidden(&at.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for (key, _) in new.text_entries("annotations") {
        if old_map.part(key).is_some() {
            continue;
        }
        if key.starts_with(APP_ARMOR_CONTAINER) {
            errors.forbidden(&at.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR_POD {
            errors.forbidden(&at.key(key), "may not add mirror pod annotation");
        }
    }
}

/// Returns true for the mirror pod of a static pod.
pub(in crate::validation) fn is_mirror(pod: &Value) -> bool {
    pod.part("metadata").part("annotations").part(MIRROR_POD).is_some()
}
