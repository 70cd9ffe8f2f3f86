//! Checks of access to the node: namespaces, ports, paths, processes and sysctls.

use std::collections::BTreeSet;

use value::Value;

use super::{PodView, Violation, containers, in_context, name, plural, quoted, setters, violation};

pub(super) fn host_namespaces(pod: PodView<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec(field) == Some(&Value::Bool(true)))
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

pub(super) fn host_path_volumes(pod: PodView<'_>) -> Option<Violation> {
    let volumes = pod.object.list_at(&["spec", "volumes"]).iter();
    let bad: Vec<&str> = volumes.filter(|volume| volume.get("hostPath").is_some()).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", bad.len()), quoted(&bad)))
}

pub(super) fn host_ports(pod: PodView<'_>) -> Option<Violation> {
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

pub(super) fn host_probes(pod: PodView<'_>) -> Option<Violation> {
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
        for handler in HANDLERS.iter().filter_map(|path| container.at(path)) {
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

pub(super) fn privileged(pod: PodView<'_>) -> Option<Violation> {
    let is_bad = |c: &&Value| in_context(c, "privileged") == Some(&Value::Bool(true));
    let bad: Vec<&str> = pod.containers().filter(is_bad).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&bad)))
}

pub(super) fn proc_mount(pod: PodView<'_>) -> Option<Violation> {
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

/// Volume types that every level allows.
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
/// Volume types that only the privileged level allows. If a volume has several, the first is reported.
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

pub(super) fn restricted_volumes(pod: PodView<'_>) -> Option<Violation> {
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

/// Allowed sysctls, in the order in which Kubernetes versions added them.
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

pub(super) fn sysctls(pod: PodView<'_>, allowed: usize) -> Option<Violation> {
    let set = pod.object.list_at(&["spec", "securityContext", "sysctls"]).iter().map(name);
    let bad: Vec<&str> =
        set.filter(|name| !SYSCTLS.iter().take(allowed).any(|known| known == name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

pub(super) fn host_process(pod: PodView<'_>) -> Option<Violation> {
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
