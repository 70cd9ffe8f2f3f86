//! The checks of the Pod Security Standards by level and version, with Kubernetes' messages.

mod host;
mod privileges;
mod profiles;

use value::Value;

use super::policy::{LevelVersion, PodSecurityLevel, PodSecurityVersion};

/// The last version in which a check changed.
pub(crate) const NEWEST: u32 = 37;

/// A pod or a pod template.
#[derive(Clone, Copy)]
pub(crate) struct PodView<'a> {
    /// Has the fields `metadata` and `spec`.
    pub(crate) object: &'a Value,
}

/// A failed check: the short and the detailed message.
pub(crate) struct Violation {
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
}

type CheckFn = fn(PodView<'_>) -> Option<Violation>;

/// A check. `forms` are its implementations by the minor version in which they begin; `overrides` names the
/// baseline check that it replaces.
struct CheckEntry {
    id: &'static str,
    forms: &'static [(u32, CheckFn)],
    overrides: Option<&'static str>,
}

/// The checks of the baseline level, sorted by id, which is the order of their messages.
const BASELINE: &[CheckEntry] = &[
    CheckEntry { id: "appArmorProfile", forms: &[(0, profiles::app_armor)], overrides: None },
    CheckEntry {
        id: "capabilities_baseline",
        forms: &[(0, privileges::capabilities_baseline)],
        overrides: None,
    },
    CheckEntry { id: "hostNamespaces", forms: &[(0, host::host_namespaces)], overrides: None },
    CheckEntry { id: "hostPathVolumes", forms: &[(0, host::host_path_volumes)], overrides: None },
    CheckEntry { id: "hostPorts", forms: &[(0, host::host_ports)], overrides: None },
    CheckEntry { id: "hostProbesAndHostLifecycle", forms: &[(34, host::host_probes)], overrides: None },
    CheckEntry { id: "privileged", forms: &[(0, host::privileged)], overrides: None },
    CheckEntry {
        id: "procMount",
        forms: &[(0, host::proc_mount), (35, |pod| pod.unless_own_users(host::proc_mount))],
        overrides: None,
    },
    CheckEntry {
        id: "seLinuxOptions",
        forms: &[
            (0, |pod| profiles::se_linux(pod, profiles::SE_LINUX_TYPES_0)),
            (31, |pod| profiles::se_linux(pod, profiles::SE_LINUX_TYPES_31)),
        ],
        overrides: None,
    },
    CheckEntry {
        id: "seccompProfile_baseline",
        forms: &[(0, profiles::seccomp_annotations), (19, |pod| profiles::seccomp(pod, false))],
        overrides: None,
    },
    CheckEntry {
        id: "sysctls",
        forms: &[
            (0, |pod| host::sysctls(pod, 5)),
            (27, |pod| host::sysctls(pod, 6)),
            (29, |pod| host::sysctls(pod, 10)),
            (32, |pod| host::sysctls(pod, 12)),
            (37, |pod| host::sysctls(pod, 14)),
        ],
        overrides: None,
    },
    CheckEntry { id: "windowsHostProcess", forms: &[(0, host::host_process)], overrides: None },
];

/// The checks that the restricted level adds, sorted by id.
const RESTRICTED: &[CheckEntry] = &[
    CheckEntry {
        id: "allowPrivilegeEscalation",
        forms: &[
            (8, privileges::privilege_escalation),
            (25, |pod| pod.unless_windows(privileges::privilege_escalation)),
        ],
        overrides: None,
    },
    CheckEntry {
        id: "capabilities_restricted",
        forms: &[
            (22, privileges::capabilities_restricted),
            (25, |pod| pod.unless_windows(privileges::capabilities_restricted)),
        ],
        overrides: Some("capabilities_baseline"),
    },
    CheckEntry { id: "procMount_restricted", forms: &[(35, host::proc_mount)], overrides: Some("procMount") },
    CheckEntry {
        id: "restrictedVolumes",
        forms: &[(0, host::restricted_volumes)],
        overrides: Some("hostPathVolumes"),
    },
    CheckEntry {
        id: "runAsNonRoot",
        forms: &[
            (0, privileges::run_as_non_root),
            (35, |pod| pod.unless_own_users(privileges::run_as_non_root)),
        ],
        overrides: None,
    },
    CheckEntry {
        id: "runAsUser",
        forms: &[(23, privileges::run_as_user), (35, |pod| pod.unless_own_users(privileges::run_as_user))],
        overrides: None,
    },
    CheckEntry {
        id: "seccompProfile_restricted",
        forms: &[
            (19, |pod| profiles::seccomp(pod, true)),
            (25, |pod| pod.unless_windows(|pod| profiles::seccomp(pod, true))),
        ],
        overrides: Some("seccompProfile_baseline"),
    },
];

impl CheckEntry {
    fn at(&self, version: u32) -> Option<CheckFn> {
        self.forms.iter().rev().find(|(since, _)| *since <= version).map(|(_, check)| *check)
    }
}

/// The checks that a pod fails at a level and version.
pub(crate) fn violations(standard: LevelVersion, pod: PodView<'_>) -> Vec<Violation> {
    if standard.level == PodSecurityLevel::Privileged {
        return Vec::new();
    }
    let version = match standard.version {
        PodSecurityVersion::Latest => NEWEST,
        PodSecurityVersion::Minor(minor) => minor.min(NEWEST),
    };
    let added = if standard.level == PodSecurityLevel::Restricted { RESTRICTED } else { &[] };
    let overridden =
        |id: &str| added.iter().any(|entry| entry.overrides == Some(id) && entry.at(version).is_some());
    BASELINE
        .iter()
        .filter(|entry| !overridden(entry.id))
        .chain(added)
        .filter_map(|entry| entry.at(version)?(pod))
        .collect()
}

/// All detailed messages as one text.
pub(crate) fn in_detail(violations: &[Violation]) -> String {
    let all: Vec<String> =
        violations
            .iter()
            .map(|v| {
                if v.detail.is_empty() { v.reason.to_owned() } else { format!("{} ({})", v.reason, v.detail) }
            })
            .collect();
    all.join(", ")
}

/// All short messages as one text.
pub(crate) fn in_short(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

impl<'a> PodView<'a> {
    fn containers(self) -> impl Iterator<Item = &'a Value> {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |field| self.object.list_at(&["spec", field]))
    }

    fn spec(self, field: &str) -> Option<&'a Value> {
        self.object.at(&["spec", field])
    }

    fn context(self, field: &str) -> Option<&'a Value> {
        self.object.at(&["spec", "securityContext", field])
    }

    /// Skips the check for pods with a user namespace (`hostUsers: false`), whose users have no rights on the
    /// host.
    fn unless_own_users(self, check: CheckFn) -> Option<Violation> {
        if self.spec("hostUsers") == Some(&Value::Bool(false)) { None } else { check(self) }
    }

    fn unless_windows(self, check: CheckFn) -> Option<Violation> {
        if self.object.str_at(&["spec", "os", "name"]) == Some("windows") { None } else { check(self) }
    }
}

fn name(object: &Value) -> &str {
    object.str_at(&["name"]).unwrap_or_default()
}

fn in_context<'a>(container: &'a Value, field: &str) -> Option<&'a Value> {
    container.at(&["securityContext", field])
}

#[expect(clippy::unnecessary_wraps, reason = "it is what a check answers")]
fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod`, the containers, or both.
fn setters(pod: bool, bad: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    if pod {
        all.push("pod".to_owned());
    }
    if !bad.is_empty() {
        all.push(containers(bad));
    }
    all
}

/// Returns who sets a field of the security context to a forbidden value (see [`setters`]), and the
/// containers for which it is not set, neither by themselves nor by the pod. `is_allowed` returns `None` for
/// an unset field.
fn forbidden_setters<'a>(
    pod: PodView<'a>,
    field: &str,
    mut is_allowed: impl FnMut(Option<&Value>) -> Option<bool>,
) -> (Vec<String>, Vec<&'a str>) {
    let for_all = is_allowed(pod.context(field));
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        match is_allowed(in_context(container, field)) {
            Some(true) => {}
            Some(false) => explicit.push(name(container)),
            None if for_all == Some(true) => {}
            None => implicit.push(name(container)),
        }
    }
    (setters(for_all == Some(false), &explicit), implicit)
}
