//! Checks of security profiles: AppArmor, SELinux and seccomp.

use std::collections::BTreeSet;

use api::field::quote;
use value::Value;

use super::{
    PodView, Violation, containers, forbidden_setters, in_context, name, plural, quoted, setters, violation,
};

pub(super) fn app_armor(pod: PodView<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |profile: Option<&Value>| {
        let Some(profile) = profile else { return false };
        let kind = profile.str_at(&["type"]).unwrap_or_default();
        let bad = !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let pod_is_bad = is_bad(pod.context("appArmorProfile"));
    let bad: Vec<&str> =
        pod.containers().filter(|c| is_bad(in_context(c, "appArmorProfile"))).map(name).collect();
    let mut bad_setters = setters(pod_is_bad, &bad);
    let mut values: Vec<String> = values.into_iter().collect();
    let mut annotations: Vec<String> = api::meta::annotations(pod.object)
        .filter(|(key, _)| key.starts_with(api::labels::APP_ARMOR_PREFIX))
        .filter(|(_, profile)| {
            !(profile.is_empty() || *profile == "runtime/default" || profile.starts_with("localhost/"))
        })
        .map(|(key, profile)| format!("{key}={}", quote(profile)))
        .collect();
    if !annotations.is_empty() {
        annotations.sort();
        bad_setters.push(plural("annotation", "annotations", annotations.len()).to_owned());
        values.append(&mut annotations);
    }
    if bad_setters.is_empty() {
        return None;
    }
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    let detail =
        format!("{} must not set AppArmor profile type to {}", bad_setters.join(" and "), quoted(values));
    violation(reason, detail)
}

pub(super) const SE_LINUX_TYPES_0: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
pub(super) const SE_LINUX_TYPES_31: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

pub(super) fn se_linux(pod: PodView<'_>, allowed: &[&str]) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut is_bad = |options: Option<&Value>| {
        let Some(options) = options else { return false };
        let text = |field| options.str_at(&[field]).unwrap_or_default();
        let bad_type = !allowed.contains(&text("type"));
        if bad_type {
            types.insert(text("type").to_owned());
        }
        user |= !text("user").is_empty();
        role |= !text("role").is_empty();
        bad_type || !text("user").is_empty() || !text("role").is_empty()
    };
    let pod_is_bad = is_bad(pod.context("seLinuxOptions"));
    let bad: Vec<&str> =
        pod.containers().filter(|c| is_bad(in_context(c, "seLinuxOptions"))).map(name).collect();
    let bad = setters(pod_is_bad, &bad);
    if bad.is_empty() {
        return None;
    }
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(types)));
    }
    if user {
        data.push("user may not be set".to_owned());
    }
    if role {
        data.push("role may not be set".to_owned());
    }
    let detail =
        format!("{} set forbidden securityContext.seLinuxOptions: {}", bad.join(" and "), data.join("; "));
    violation("seLinuxOptions", detail)
}

pub(super) fn seccomp_annotations(pod: PodView<'_>) -> Option<Violation> {
    let annotation = |key: &str| pod.object.str_at(&["metadata", "annotations", key]);
    let is_allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let of_containers =
        pod.containers().map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(c)));
    let forbidden: BTreeSet<String> = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned())
        .chain(of_containers)
        .filter_map(|key| {
            let profile = annotation(&key).filter(|profile| !is_allowed(profile))?;
            Some(format!("{key}={}", quote(profile)))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let listed: Vec<&str> = forbidden.iter().map(String::as_str).collect();
    let words = plural("annotation", "annotations", listed.len());
    violation("seccompProfile", format!("forbidden {words} {}", listed.join(", ")))
}

/// `required`: a profile must be set for every container.
pub(super) fn seccomp(pod: PodView<'_>, required: bool) -> Option<Violation> {
    let mut values = BTreeSet::new();
    // `None` if no profile is set.
    let (bad, implicit) = forbidden_setters(pod, "seccompProfile", |profile| {
        let kind = profile?.str_at(&["type"]).unwrap_or_default();
        let allowed = matches!(kind, "RuntimeDefault" | "Localhost");
        if !allowed {
            values.insert(kind.to_owned());
        }
        Some(allowed)
    });
    let detail = if !bad.is_empty() {
        let bad = bad.join(" and ");
        format!("{bad} must not set securityContext.seccompProfile.type to {}", quoted(values))
    } else if required && !implicit.is_empty() {
        let implicit = containers(&implicit);
        format!(
            "pod or {implicit} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        )
    } else {
        return None;
    };
    violation("seccompProfile", detail)
}
