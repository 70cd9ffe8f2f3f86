//! The checks: what each level forbids in each version, in Kubernetes' words.

mod host;
mod privileges;
mod profiles;

use value::Value;

use super::policy::{Level, Standard, Version};

/// The last version in which a check changed; later ones are the same.
pub(crate) const NEWEST: u32 = 37;

/// A pod or the template of one.
#[derive(Clone, Copy)]
pub(crate) struct Pod<'a> {
    /// Its metadata and specification.
    pub(crate) object: &'a Value,
}

/// What a check found: in short, and in detail.
pub(crate) struct Violation {
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
}

type Check = fn(Pod<'_>) -> Option<Violation>;

/// A check with the versions in which its forms begin; `overrides` names the baseline check that it replaces.
struct Entry {
    id: &'static str,
    forms: &'static [(u32, Check)],
    overrides: Option<&'static str>,
}

/// The checks of the baseline level, sorted by name, in the order in which violations are told.
const BASELINE: &[Entry] = &[
    Entry { id: "appArmorProfile", forms: &[(0, profiles::app_armor)], overrides: None },
    Entry { id: "capabilities_baseline", forms: &[(0, privileges::capabilities_baseline)], overrides: None },
    Entry { id: "hostNamespaces", forms: &[(0, host::host_namespaces)], overrides: None },
    Entry { id: "hostPathVolumes", forms: &[(0, host::host_path_volumes)], overrides: None },
    Entry { id: "hostPorts", forms: &[(0, host::host_ports)], overrides: None },
    Entry { id: "hostProbesAndHostLifecycle", forms: &[(34, host::host_probes)], overrides: None },
    Entry { id: "privileged", forms: &[(0, host::privileged)], overrides: None },
    Entry {
        id: "procMount",
        forms: &[(0, host::proc_mount), (35, |pod| pod.unless_own_users(host::proc_mount))],
        overrides: None,
    },
    Entry {
        id: "seLinuxOptions",
        forms: &[
            (0, |pod| profiles::se_linux(pod, profiles::SE_LINUX_TYPES_0)),
            (31, |pod| profiles::se_linux(pod, profiles::SE_LINUX_TYPES_31)),
        ],
        overrides: None,
    },
    Entry {
        id: "seccompProfile_baseline",
        forms: &[(0, profiles::seccomp_annotations), (19, |pod| profiles::seccomp(pod, false))],
        overrides: None,
    },
    Entry {
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
    Entry { id: "windowsHostProcess", forms: &[(0, host::host_process)], overrides: None },
];

/// The checks that the restricted level adds, likewise.
const RESTRICTED: &[Entry] = &[
    Entry {
        id: "allowPrivilegeEscalation",
        forms: &[
            (8, privileges::privilege_escalation),
            (25, |pod| pod.unless_windows(privileges::privilege_escalation)),
        ],
        overrides: None,
    },
    Entry {
        id: "capabilities_restricted",
        forms: &[
            (22, privileges::capabilities_restricted),
            (25, |pod| pod.unless_windows(privileges::capabilities_restricted)),
        ],
        overrides: Some("capabilities_baseline"),
    },
    Entry { id: "procMount_restricted", forms: &[(35, host::proc_mount)], overrides: Some("procMount") },
    Entry {
        id: "restrictedVolumes",
        forms: &[(0, host::restricted_volumes)],
        overrides: Some("hostPathVolumes"),
    },
    Entry {
        id: "runAsNonRoot",
        forms: &[
            (0, privileges::run_as_non_root),
            (35, |pod| pod.unless_own_users(privileges::run_as_non_root)),
        ],
        overrides: None,
    },
    Entry {
        id: "runAsUser",
        forms: &[(23, privileges::run_as_user), (35, |pod| pod.unless_own_users(privileges::run_as_user))],
        overrides: None,
    },
    Entry {
        id: "seccompProfile_restricted",
        forms: &[
            (19, |pod| profiles::seccomp(pod, true)),
            (25, |pod| pod.unless_windows(|pod| profiles::seccomp(pod, true))),
        ],
        overrides: Some("seccompProfile_baseline"),
    },
];

impl Entry {
    fn at(&self, version: u32) -> Option<Check> {
        self.forms.iter().rev().find(|(since, _)| *since <= version).map(|(_, check)| *check)
    }
}

/// All that a pod violates of a standard.
pub(crate) fn violations(standard: Standard, pod: Pod<'_>) -> Vec<Violation> {
    if standard.level == Level::Privileged {
        return Vec::new();
    }
    let version = match standard.version {
        Version::Latest => NEWEST,
        Version::Minor(minor) => minor.min(NEWEST),
    };
    let added = if standard.level == Level::Restricted { RESTRICTED } else { &[] };
    let overridden =
        |id: &str| added.iter().any(|entry| entry.overrides == Some(id) && entry.at(version).is_some());
    BASELINE
        .iter()
        .filter(|entry| !overridden(entry.id))
        .chain(added)
        .filter_map(|entry| entry.at(version)?(pod))
        .collect()
}

/// The violations in detail, as one text.
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

/// The violations in short, as one text.
pub(crate) fn in_short(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

impl<'a> Pod<'a> {
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

    /// Users of a pod with users of its own are nobody outside.
    fn unless_own_users(self, check: Check) -> Option<Violation> {
        if self.spec("hostUsers") == Some(&Value::Bool(false)) { None } else { check(self) }
    }

    fn unless_windows(self, check: Check) -> Option<Violation> {
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

/// Who sets a field of the security context as is not allowed (see [`setters`]), and the containers for which nobody sets it: the
/// pod's is for those that have none. `judge` says whether it is set, and whether as is allowed.
fn judged<'a>(
    pod: Pod<'a>,
    field: &str,
    mut judge: impl FnMut(Option<&Value>) -> Option<bool>,
) -> (Vec<String>, Vec<&'a str>) {
    let for_all = judge(pod.context(field));
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        match judge(in_context(container, field)) {
            Some(true) => {}
            Some(false) => explicit.push(name(container)),
            None if for_all == Some(true) => {}
            None => implicit.push(name(container)),
        }
    }
    (setters(for_all == Some(false), &explicit), implicit)
}
