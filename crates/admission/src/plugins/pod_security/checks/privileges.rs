//! Checks of privileges: users and capabilities.

use std::collections::BTreeSet;

use value::Value;

use super::{
    PodView, Violation, containers, forbidden_setters, in_context, name, quoted, setters, violation,
};

pub(super) fn privilege_escalation(pod: PodView<'_>) -> Option<Violation> {
    let allowed = |c: &&Value| in_context(c, "allowPrivilegeEscalation") == Some(&Value::Bool(false));
    let bad: Vec<&str> = pod.containers().filter(|c| !allowed(c)).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add forbidden capabilities, and these capabilities.
fn added_capabilities<'a>(pod: PodView<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut forbidden = BTreeSet::new();
    let mut bad = Vec::new();
    for container in pod.containers() {
        let added = container.list_at(&["securityContext", "capabilities", "add"]).iter();
        let before = bad.len();
        for capability in added.filter_map(Value::as_str).filter(|c| !allowed.contains(c)) {
            forbidden.insert(capability);
            if bad.len() == before {
                bad.push(name(container));
            }
        }
    }
    (bad, forbidden)
}

pub(super) fn capabilities_baseline(pod: PodView<'_>) -> Option<Violation> {
    let (bad, forbidden) = added_capabilities(pod, DEFAULT_CAPABILITIES);
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers(&bad),
        quoted(forbidden)
    );
    violation("non-default capabilities", detail)
}

pub(super) fn capabilities_restricted(pod: PodView<'_>) -> Option<Violation> {
    let drops_all = |container: &&Value| {
        let dropped = container.list_at(&["securityContext", "capabilities", "drop"]);
        dropped.iter().any(|capability| capability.as_str() == Some("ALL"))
    };
    let keeping: Vec<&str> = pod.containers().filter(|c| !drops_all(c)).map(name).collect();
    let (adding, forbidden) = added_capabilities(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details
            .push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(forbidden)
        ));
    }
    if details.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", details.join("; "))
}

pub(super) fn run_as_non_root(pod: PodView<'_>) -> Option<Violation> {
    let (bad, implicit) = forbidden_setters(pod, "runAsNonRoot", |set| set.and_then(Value::as_bool));
    let detail = if !bad.is_empty() {
        format!("{} must not set securityContext.runAsNonRoot=false", bad.join(" and "))
    } else if !implicit.is_empty() {
        format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit))
    } else {
        return None;
    };
    violation("runAsNonRoot != true", detail)
}

pub(super) fn run_as_user(pod: PodView<'_>) -> Option<Violation> {
    let is_root = |user: Option<&Value>| user.and_then(Value::as_int) == Some(0);
    let bad: Vec<&str> = pod.containers().filter(|c| is_root(in_context(c, "runAsUser"))).map(name).collect();
    let bad = setters(is_root(pod.context("runAsUser")), &bad);
    if bad.is_empty() {
        return None;
    }
    violation("runAsUser=0", format!("{} must not set runAsUser=0", bad.join(" and ")))
}
