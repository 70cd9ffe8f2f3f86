//! The checks: what each level forbids in each version, in Kubernetes' words.

use std::collections::BTreeSet;

use api::field::quote;
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
    Entry { id: "appArmorProfile", forms: &[(0, app_armor)], overrides: None },
    Entry { id: "capabilities_baseline", forms: &[(0, capabilities_baseline)], overrides: None },
    Entry { id: "hostNamespaces", forms: &[(0, host_namespaces)], overrides: None },
    Entry { id: "hostPathVolumes", forms: &[(0, host_path_volumes)], overrides: None },
    Entry { id: "hostPorts", forms: &[(0, host_ports)], overrides: None },
    Entry { id: "hostProbesAndHostLifecycle", forms: &[(34, host_probes)], overrides: None },
    Entry { id: "privileged", forms: &[(0, privileged)], overrides: None },
    Entry {
        id: "procMount",
        forms: &[(0, proc_mount), (35, |pod| pod.unless_own_users(proc_mount))],
        overrides: None,
    },
    Entry {
        id: "seLinuxOptions",
        forms: &[(0, |pod| se_linux(pod, SE_LINUX_TYPES_0)), (31, |pod| se_linux(pod, SE_LINUX_TYPES_31))],
        overrides: None,
    },
    Entry {
        id: "seccompProfile_baseline",
        forms: &[(0, seccomp_annotations), (19, |pod| seccomp(pod, false))],
        overrides: None,
    },
    Entry {
        id: "sysctls",
        forms: &[
            (0, |pod| sysctls(pod, 5)),
            (27, |pod| sysctls(pod, 6)),
            (29, |pod| sysctls(pod, 10)),
            (32, |pod| sysctls(pod, 12)),
            (37, |pod| sysctls(pod, 14)),
        ],
        overrides: None,
    },
    Entry { id: "windowsHostProcess", forms: &[(0, host_process)], overrides: None },
];

/// The checks that the restricted level adds, likewise.
const RESTRICTED: &[Entry] = &[
    Entry {
        id: "allowPrivilegeEscalation",
        forms: &[(8, privilege_escalation), (25, |pod| pod.unless_windows(privilege_escalation))],
        overrides: None,
    },
    Entry {
        id: "capabilities_restricted",
        forms: &[(22, capabilities_restricted), (25, |pod| pod.unless_windows(capabilities_restricted))],
        overrides: Some("capabilities_baseline"),
    },
    Entry { id: "procMount_restricted", forms: &[(35, proc_mount)], overrides: Some("procMount") },
    Entry { id: "restrictedVolumes", forms: &[(0, restricted_volumes)], overrides: Some("hostPathVolumes") },
    Entry {
        id: "runAsNonRoot",
        forms: &[(0, run_as_non_root), (35, |pod| pod.unless_own_users(run_as_non_root))],
        overrides: None,
    },
    Entry {
        id: "runAsUser",
        forms: &[(23, run_as_user), (35, |pod| pod.unless_own_users(run_as_user))],
        overrides: None,
    },
    Entry {
        id: "seccompProfile_restricted",
        forms: &[(19, |pod| seccomp(pod, true)), (25, |pod| pod.unless_windows(|pod| seccomp(pod, true)))],
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

fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let allowed = |c: &&Value| in_context(c, "allowPrivilegeEscalation") == Some(&Value::Bool(false));
    let bad: Vec<&str> = pod.containers().filter(|c| !allowed(c)).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

fn app_armor(pod: Pod<'_>) -> Option<Violation> {
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
        .filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"))
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

/// The containers that add what is not allowed, and what that is.
fn added_capabilities<'a>(pod: Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
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

fn capabilities_baseline(pod: Pod<'_>) -> Option<Violation> {
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

fn capabilities_restricted(pod: Pod<'_>) -> Option<Violation> {
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

fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec(field) == Some(&Value::Bool(true)))
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = pod.object.list_at(&["spec", "volumes"]).iter();
    let bad: Vec<&str> = volumes.filter(|volume| volume.get("hostPath").is_some()).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", bad.len()), quoted(&bad)))
}

fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let mut bad = Vec::new();
    for container in pod.containers() {
        let used = container.list_at(&["ports"]).iter().filter_map(|port| port.int_at(&["hostPort"]));
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        if !used.is_empty() {
            bad.push(name(container));
            ports.extend(used);
        }
    }
    if bad.is_empty() {
        return None;
    }
    let listed: Vec<&str> = ports.iter().map(String::as_str).collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&bad),
        plural("uses", "use", bad.len()),
        plural("hostPort", "hostPorts", listed.len()),
        listed.join(", ")
    );
    violation("hostPort", detail)
}

fn host_probes(pod: Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let mut hosts = BTreeSet::new();
    let mut bad = BTreeSet::new();
    for container in pod.containers() {
        for handler in HANDLERS.iter().filter_map(|way| container.at(way)) {
            for action in ["httpGet", "tcpSocket"] {
                if let Some(host) = handler.str_at(&[action, "host"]).filter(|host| !host.is_empty()) {
                    hosts.insert(host);
                    bad.insert(name(container));
                }
            }
        }
    }
    if bad.is_empty() {
        return None;
    }
    let bad: Vec<&str> = bad.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&bad),
        plural("uses", "use", bad.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(hosts)
    );
    violation("probe or lifecycle host", detail)
}

fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let is_bad = |c: &&Value| in_context(c, "privileged") == Some(&Value::Bool(true));
    let bad: Vec<&str> = pod.containers().filter(is_bad).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&bad)))
}

fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let mut bad = Vec::new();
    for container in pod.containers() {
        let kind = in_context(container, "procMount").and_then(Value::as_str);
        if let Some(kind) = kind.filter(|kind| *kind != "Default") {
            kinds.insert(kind);
            bad.push(name(container));
        }
    }
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.procMount to {}", containers(&bad), quoted(kinds));
    violation("procMount", detail)
}

/// Volume sources that anybody may use.
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Those that only the privileged may; of several in one volume the first is told.
const PRIVILEGED_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn restricted_volumes(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let mut bad = Vec::new();
    for volume in pod.object.list_at(&["spec", "volumes"]) {
        if VOLUMES.iter().any(|source| volume.get(source).is_some()) {
            continue;
        }
        let source = PRIVILEGED_VOLUMES.iter().find(|source| volume.get(source).is_some());
        kinds.insert(source.copied().unwrap_or("unknown"));
        bad.push(name(volume));
    }
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", bad.len()),
        quoted(&bad),
        plural("uses", "use", bad.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    let for_all = pod.context("runAsNonRoot").and_then(Value::as_bool);
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        match in_context(container, "runAsNonRoot").and_then(Value::as_bool) {
            Some(true) => {}
            Some(false) => explicit.push(name(container)),
            None if for_all == Some(true) => {}
            None => implicit.push(name(container)),
        }
    }
    let bad = setters(for_all == Some(false), &explicit);
    let detail = if !bad.is_empty() {
        format!("{} must not set securityContext.runAsNonRoot=false", bad.join(" and "))
    } else if !implicit.is_empty() {
        format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit))
    } else {
        return None;
    };
    violation("runAsNonRoot != true", detail)
}

fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |user: Option<&Value>| user.and_then(Value::as_int) == Some(0);
    let bad: Vec<&str> = pod.containers().filter(|c| is_root(in_context(c, "runAsUser"))).map(name).collect();
    let bad = setters(is_root(pod.context("runAsUser")), &bad);
    if bad.is_empty() {
        return None;
    }
    violation("runAsUser=0", format!("{} must not set runAsUser=0", bad.join(" and ")))
}

const SE_LINUX_TYPES_0: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SE_LINUX_TYPES_31: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn se_linux(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
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

fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
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

/// `required`: somebody must set a profile.
fn seccomp(pod: Pod<'_>, required: bool) -> Option<Violation> {
    let mut values = BTreeSet::new();
    // Whether a profile is set, and whether it is one of those that are allowed.
    let mut judge = |profile: Option<&Value>| {
        let kind = profile?.str_at(&["type"]).unwrap_or_default();
        let allowed = matches!(kind, "RuntimeDefault" | "Localhost");
        if !allowed {
            values.insert(kind.to_owned());
        }
        Some(allowed)
    };
    let for_all = judge(pod.context("seccompProfile"));
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        match judge(in_context(container, "seccompProfile")) {
            Some(true) => {}
            Some(false) => explicit.push(name(container)),
            None if for_all == Some(true) => {}
            None => implicit.push(name(container)),
        }
    }
    let bad = setters(for_all == Some(false), &explicit);
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

/// The harmless ones, in the order in which they became so.
const SYSCTLS: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

fn sysctls(pod: Pod<'_>, allowed: usize) -> Option<Violation> {
    let set = pod.object.list_at(&["spec", "securityContext", "sysctls"]).iter().map(name);
    let bad: Vec<&str> =
        set.filter(|name| !SYSCTLS.iter().take(allowed).any(|known| known == name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn host_process(pod: Pod<'_>) -> Option<Violation> {
    let is_bad = |context: Option<&Value>| {
        context.and_then(|context| context.bool_at(&["windowsOptions", "hostProcess"])) == Some(true)
    };
    let bad: Vec<&str> = pod.containers().filter(|c| is_bad(c.get("securityContext"))).map(name).collect();
    let bad = setters(is_bad(pod.spec("securityContext")), &bad);
    if bad.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.windowsOptions.hostProcess=true", bad.join(" and "));
    violation("hostProcess", detail)
}
