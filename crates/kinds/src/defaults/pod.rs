//! Defaults of Pod, PodTemplate and the pod templates of workloads.
//!
//! A template gets the defaults of the pod spec, its containers and volumes. [`pod`] adds defaults that only pods get:
//! requests from limits, host ports, service links.

use value::{Map, Value};

use super::{
    fields::Fill,
    image,
    quantities::{round_up, round_up_list},
};
use crate::pod_containers::CONTAINER_LISTS;

const DEFAULT_FILE_MODE: i64 = 0o644;
const TOKEN_LIFETIME_SECONDS: i64 = 3600;
const TERMINATION_GRACE_SECONDS: i64 = 30;

pub fn pod(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_int).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds", 1);
    }
    for list in ["containers", "initContainers"] {
        for container in spec.children(list) {
            requests_from_limits(container);
        }
    }
    spec.fill("enableServiceLinks", true);
    if spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or_default() {
        for list in ["containers", "initContainers"] {
            for port in spec.children(list).flat_map(|container| container.children("ports")) {
                if let Some(number) = port.get("containerPort").cloned() {
                    port.fill_zero("hostPort", number);
                }
            }
        }
    }
    pod_spec(spec);
    if let Some(status) = object.child("status") {
        pod_status(status);
    }
}

pub fn pod_template(object: &mut Value) {
    if let Some(object) = object.as_map_mut() {
        template(object.child_or_insert("template"));
    }
}

pub(super) fn template(template: &mut Map) {
    pod_spec(template.child_or_insert("spec"));
}

fn requests_from_limits(container: &mut Map) {
    let Some(resources) = container.child("resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_map).cloned() else { return };
    let requests = resources.child_or_insert("requests");
    for (name, quantity) in limits {
        if !requests.contains_key(&name) {
            requests.insert(name, quantity);
        }
    }
}

fn pod_spec(spec: &mut Map) {
    let account = [spec.get("serviceAccountName"), spec.get("serviceAccount")]
        .into_iter()
        .flatten()
        .find(|name| name.as_str().is_some_and(|name| !name.is_empty()))
        .cloned();
    if let Some(account) = account {
        spec.insert("serviceAccountName", account.clone());
        spec.insert("serviceAccount", account);
    }
    spec.fill_zero("dnsPolicy", "ClusterFirst");
    spec.fill_zero("restartPolicy", "Always");
    spec.fill("securityContext", Map::new());
    spec.fill("terminationGracePeriodSeconds", TERMINATION_GRACE_SECONDS);
    spec.fill_zero("schedulerName", "default-scheduler");
    spec.children("volumes").for_each(volume);
    for list in CONTAINER_LISTS {
        spec.children(list).for_each(container);
    }
    round_up_list(spec, "overhead");
    if let Some(resources) = spec.child("resources") {
        round_up(resources);
    }
}

fn pod_status(status: &mut Map) {
    let ip = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = status
        .get("podIPs")
        .and_then(Value::as_list)
        .and_then(<[Value]>::first)
        .map(|first| first.str_at(&["ip"]).unwrap_or_default().to_owned());
    match first {
        Some(first) if ip.is_empty() => {
            if !first.is_empty() {
                status.insert("podIP", first);
            }
        }
        Some(first) if first == ip => {}
        None if ip.is_empty() => {}
        // Older kubelets set only `podIP`, so it wins.
        _ => {
            status.insert("podIPs", Value::list([Value::map([("ip", ip)])]));
        }
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status.children(list) {
            round_up_list(container, "allocatedResources");
            if let Some(resources) = container.child("resources") {
                round_up(resources);
            }
        }
    }
    round_up_list(status, "allocatedResources");
    if let Some(resources) = status.child("resources") {
        round_up(resources);
    }
}

fn container(container: &mut Map) {
    pull_policy(container, "image", "imagePullPolicy");
    container.fill_zero("terminationMessagePath", "/dev/termination-log");
    container.fill_zero("terminationMessagePolicy", "File");
    for port in container.children("ports") {
        port.fill_zero("protocol", "TCP");
    }
    for variable in container.children("env") {
        let Some(source) = variable.child("valueFrom") else { continue };
        field_ref(source);
        if let Some(file) = source.child("fileKeyRef") {
            file.fill("optional", false);
        }
    }
    if let Some(resources) = container.child("resources") {
        round_up(resources);
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.child(field) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = container.child("lifecycle") {
        for field in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.child(field) {
                http_get(handler);
            }
        }
    }
}

fn pull_policy(holder: &mut Map, reference: &str, policy: &str) {
    let image = holder.get(reference).and_then(Value::as_str).unwrap_or_default();
    let default = if image::is_latest(image) { "Always" } else { "IfNotPresent" };
    holder.fill_zero(policy, default);
}

fn probe(probe: &mut Map) {
    probe.fill_zero("timeoutSeconds", 1);
    probe.fill_zero("periodSeconds", 10);
    probe.fill_zero("successThreshold", 1);
    probe.fill_zero("failureThreshold", 3);
    http_get(probe);
    if let Some(grpc) = probe.child("grpc") {
        grpc.fill("service", "");
    }
}

fn http_get(handler: &mut Map) {
    if let Some(http) = handler.child("httpGet") {
        http.fill_zero("path", "/");
        http.fill_zero("scheme", "HTTP");
    }
}

fn field_ref(holder: &mut Map) {
    if let Some(reference) = holder.child("fieldRef") {
        reference.fill_zero("apiVersion", "v1");
    }
}

fn volume(volume: &mut Map) {
    let has_source = volume.iter().any(|(field, value)| field != "name" && !value.is_null());
    if !has_source {
        volume.insert("emptyDir", Map::new());
    }
    if let Some(image) = volume.child("image") {
        pull_policy(image, "reference", "pullPolicy");
    }
    for field in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.child(field) {
            source.fill("defaultMode", DEFAULT_FILE_MODE);
            source.children("items").for_each(field_ref);
        }
    }
    if let Some(projected) = volume.child("projected") {
        for source in projected.children("sources") {
            if let Some(downward) = source.child("downwardAPI") {
                downward.children("items").for_each(field_ref);
            }
            if let Some(token) = source.child("serviceAccountToken") {
                token.fill("expirationSeconds", TOKEN_LIFETIME_SECONDS);
            }
        }
    }
    if let Some(claim) = volume.child("ephemeral").and_then(|source| source.child("volumeClaimTemplate")) {
        let spec = claim.child_or_insert("spec");
        spec.fill("volumeMode", "Filesystem");
        if let Some(resources) = spec.child("resources") {
            round_up(resources);
        }
    }
    storage_source(volume);
}

/// Defaults of volume sources that pods and PersistentVolumes share.
pub(crate) fn storage_source(holder: &mut Map) {
    if let Some(source) = holder.child("hostPath") {
        source.fill("type", "");
    }
    if let Some(source) = holder.child("iscsi") {
        source.fill_zero("iscsiInterface", "default");
    }
    if let Some(source) = holder.child("rbd") {
        source.fill_zero("pool", "rbd");
        source.fill_zero("user", "admin");
        source.fill_zero("keyring", "/etc/ceph/keyring");
    }
    if let Some(source) = holder.child("azureDisk") {
        source.fill("cachingMode", "ReadWrite");
        source.fill("fsType", "ext4");
        source.fill("readOnly", false);
        source.fill("kind", "Shared");
    }
    if let Some(source) = holder.child("scaleIO") {
        source.fill_zero("storageMode", "ThinProvisioned");
        source.fill_zero("fsType", "xfs");
    }
}
