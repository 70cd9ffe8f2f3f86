//! Validation of sysctls in a pod's security context.

use std::collections::HashSet;

use api::FieldErrors;
use api::validation::fields::{At, Read, Report};
use value::Value;

use super::options::PodValidationOptions;

const MAX_SYSCTL: usize = 253;

pub(super) fn sysctls(
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
