//! Validation of container ports, volume mounts and volume devices.

use std::collections::{HashMap, HashSet};

use api::validation::fields::{At, Read, Report};
use api::validation::repeated::first_by;
use api::{FieldErrors, names};
use value::Value;

use super::volume_paths::{descending_path, no_backsteps};
use crate::validation::ports::{port_number, protocol};

/// Volumes of a pod that have no errors, by name.
pub(in crate::validation) type Volumes<'a> = HashMap<&'a str, &'a Value>;

pub(in crate::validation) fn ports(container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("ports");
    let mut names_seen: HashSet<&str> = HashSet::new();
    for (i, port) in container.items("ports").iter().enumerate() {
        let at = list.index(i);
        let name = port.text("name");
        if !name.is_empty() {
            let wrong = names::is_valid_port_name(name);
            if !wrong.is_empty() {
                errors.invalid_each(&at.field("name"), name, wrong);
            } else if !names_seen.insert(name) {
                errors.duplicate(&at.field("name"), name);
            }
        }
        let number = port.number("containerPort");
        if number == 0 {
            errors.required(&at.field("containerPort"), "");
        } else {
            port_number(number, &at.field("containerPort"), errors);
        }
        let host = port.number("hostPort");
        if host != 0 {
            port_number(host, &at.field("hostPort"), errors);
        }
        protocol(port.text("protocol"), &at.field("protocol"), errors);
    }
}

/// Rejects containers that use the same host port.
pub(in crate::validation) fn host_ports<'a>(
    containers: impl IntoIterator<Item = (usize, &'a Value)>,
    list: &At<'_>,
    errors: &mut FieldErrors,
) {
    let mut taken: HashSet<String> = HashSet::new();
    for (i, container) in containers {
        let at = list.index(i);
        let ports = at.field("ports");
        for (i, port) in container.items("ports").iter().enumerate() {
            let number = port.number("hostPort");
            if number == 0 {
                continue;
            }
            let host_port = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if taken.contains(&host_port) {
                errors.duplicate(&ports.index(i).field("hostPort"), host_port);
            } else {
                taken.insert(host_port);
            }
        }
    }
}

/// Validates `volumeMounts` against the pod's `volumes`.
pub(in crate::validation) fn mounts(
    container: &Value,
    volumes: &Volumes<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let list = at.field("volumeMounts");
    let devices = container.items("volumeDevices");
    let (device_names, device_paths) = (first_by(devices, "name"), last_paths(devices, "devicePath"));
    let mut paths: HashSet<&str> = HashSet::new();
    for (i, mount) in container.items("volumeMounts").iter().enumerate() {
        let at = list.index(i);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        }
        let volume = volumes.get(name);
        if volume.is_none() {
            errors.not_found(&at.field("name"), name);
        }
        if path.is_empty() {
            errors.required(&at.field("mountPath"), "");
        }
        if !paths.insert(path) {
            errors.invalid(&at.field("mountPath"), path, "must be unique");
        }
        if device_names.contains_key(name) {
            errors.invalid(&at.field("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&at.field("mountPath"), path, detail);
        }
        sub_paths(mount, &list, &at, errors);
        if let Some(propagation) = mount.text_if_set("mountPropagation") {
            mount_propagation(propagation, container, &list.field("mountPropagation"), errors);
        }
        recursive_read_only(mount, &list.field("recursiveReadOnly"), errors);
        bind_options(mount, volume.copied(), &at.field("bindMountOptions"), errors);
    }
}

/// Paths of the last entry for each name.
fn last_paths<'a>(entries: &'a [Value], field: &str) -> HashSet<&'a str> {
    let last: HashMap<&str, &str> =
        entries.iter().map(|entry| (entry.text("name"), entry.text(field))).collect();
    last.into_values().collect()
}

fn sub_paths(mount: &Value, list: &At<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
    if !sub_path.is_empty() {
        descending_path(sub_path, &list.field("subPath"), errors);
    }
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&at.field("subPathExpr"), expression, detail);
        }
        descending_path(expression, &list.field("subPathExpr"), errors);
    }
}

fn mount_propagation(propagation: &str, container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    if !MODES.contains(&propagation) {
        errors.not_supported(at, propagation, &MODES);
    }
    if propagation == "Bidirectional" && !container.part("securityContext").flag("privileged") {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(at, detail);
    }
}

fn recursive_read_only(mount: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    match mount.text_if_set("recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                errors.forbidden(at, "may only be specified when readOnly is true");
            }
            if mount.text_if_set("mountPropagation").is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(at, detail);
            }
        }
        Some(other) => errors.not_supported(at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn bind_options(mount: &Value, volume: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const OPTIONS: [&str; 3] = ["nodev", "noexec", "nosuid"];
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, option) in mount.texts("bindMountOptions").enumerate() {
        let at = at.index(i);
        if !OPTIONS.contains(&option) {
            errors.not_supported(&at, option, &OPTIONS);
        }
        if !seen.insert(option) {
            errors.duplicate(&at, option);
        }
    }
    let options = mount.items("bindMountOptions");
    if !options.is_empty() && volume.is_some_and(|volume| volume.part("image").is_some()) {
        errors.invalid(at, options.to_vec(), "bindMountOptions may not be used with image volumes");
    }
}

/// Validates `volumeDevices` against the pod's `volumes`.
pub(in crate::validation) fn devices(
    container: &Value,
    volumes: &Volumes<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let list = at.field("volumeDevices");
    let mounts = container.items("volumeMounts");
    let (mount_names, mount_paths) = (first_by(mounts, "name"), last_paths(mounts, "mountPath"));
    let (mut names_seen, mut paths): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    for (i, device) in container.items("volumeDevices").iter().enumerate() {
        let at = list.index(i);
        let (name, path) = (device.text("name"), device.text("devicePath"));
        let (name_at, path_at) = (at.field("name"), at.field("devicePath"));
        if name.is_empty() {
            errors.required(&name_at, "");
        }
        if names_seen.contains(name) {
            errors.invalid(&name_at, name, "must be unique");
        }
        match volumes.get(name) {
            Some(volume)
                if volume.part("persistentVolumeClaim").is_none() && volume.part("ephemeral").is_none() =>
            {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&name_at, name, detail);
            }
            Some(_) => {}
            None => errors.not_found(&name_at, name),
        }
        if path.is_empty() {
            errors.required(&path_at, "");
        }
        if paths.contains(path) {
            errors.invalid(&path_at, path, "must be unique");
        }
        let mut backsteps = api::FieldErrors::new();
        no_backsteps(path, &path_at, &mut backsteps);
        if backsteps.is_empty() {
            paths.insert(path);
        } else {
            errors.invalid(&path_at, path, "can not contain backsteps ('..')");
        }
        if mount_names.contains_key(name) {
            errors.invalid(&name_at, name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path) {
            errors.invalid(&path_at, path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names_seen.insert(name);
        }
    }
}
