//! Columns of the core group.

use std::collections::BTreeSet;

use value::{Map, Value};

use super::apps::{REPLICA_COLUMNS, replica_cells};
use super::view::{View, cells, find_condition, quantity, texts};
use super::{Column, TableDef, events, pod, service};

pub(crate) const POD: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Ready"),
        Column::text("Status"),
        Column::text("Restarts"),
        Column::AGE,
        Column::text("IP").wide(),
        Column::text("Node").wide(),
        Column::text("Nominated Node").wide(),
        Column::text("Readiness Gates").wide(),
    ],
    pod::pod,
);

pub(crate) const POD_TEMPLATE: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Containers"), Column::text("Images"), Column::text("Pod Labels")],
    |v| {
        let (names, images) = v.containers(&["template", "spec", "containers"]);
        cells![v.name(), names, images, v.labels(&["template", "metadata", "labels"])]
    },
);

pub(crate) const REPLICATION_CONTROLLER: TableDef =
    TableDef::new(REPLICA_COLUMNS, |v| replica_cells(v, v.labels(&["spec", "selector"])));

pub(crate) const SERVICE: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Type"),
        Column::text("Cluster-IP"),
        Column::text("External-IP"),
        Column::text("Port(s)"),
        Column::AGE,
        Column::SELECTOR,
    ],
    service::service,
);

pub(crate) const ENDPOINTS: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Endpoints"), Column::AGE], |v| {
        cells![v.name(), service::endpoints(v), v.age()]
    });

pub(crate) const NODE: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Roles"),
        Column::AGE,
        Column::text("Version"),
        Column::text("Internal-IP").wide(),
        Column::text("External-IP").wide(),
        Column::text("OS-Image").wide(),
        Column::text("Kernel-Version").wide(),
        Column::text("Container-Runtime").wide(),
    ],
    node,
);

pub(crate) const EVENT: TableDef = TableDef::new(events::COLUMNS, events::event);

pub(crate) const NAMESPACE: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Status"), Column::AGE], |v| {
        cells![v.name(), v.text(&["status", "phase"]), v.age()]
    });

pub(crate) const SECRET: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Type"), Column::text("Data"), Column::AGE], |v| {
        cells![v.name(), v.text(&["type"]), v.count(&["data"]), v.age()]
    });

pub(crate) const CONFIG_MAP: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Data"), Column::AGE], |v| {
        cells![v.name(), v.count(&["data"]) + v.count(&["binaryData"]), v.age()]
    });

pub(crate) const SERVICE_ACCOUNT: TableDef =
    TableDef::new(&[Column::NAME, Column::AGE], |v| cells![v.name(), v.age()]);

pub(crate) const PERSISTENT_VOLUME: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Capacity"),
        Column::text("Access Modes"),
        Column::text("Reclaim Policy"),
        Column::text("Status"),
        Column::text("Claim"),
        Column::text("StorageClass"),
        Column::text("VolumeAttributesClass"),
        Column::text("Reason"),
        Column::AGE,
        Column::text("VolumeMode").wide(),
    ],
    persistent_volume,
);

pub(crate) const PERSISTENT_VOLUME_CLAIM: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Volume"),
        Column::text("Capacity"),
        Column::text("Access Modes"),
        Column::text("StorageClass"),
        Column::text("VolumeAttributesClass"),
        Column::AGE,
        Column::text("VolumeMode").wide(),
    ],
    persistent_volume_claim,
);

pub(crate) const COMPONENT_STATUS: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Status"), Column::text("Message"), Column::text("Error")],
    |v| {
        let healthy = find_condition(v.list(&["conditions"]), "Healthy");
        let text = |field: &str| healthy.and_then(|c| c.str_at(&[field])).unwrap_or_default();
        let status = match healthy {
            None => "Unknown",
            Some(_) if text("status") == "True" => "Healthy",
            Some(_) => "Unhealthy",
        };
        cells![v.name(), status, text("message"), text("error")]
    },
);

pub(crate) const RESOURCE_QUOTA: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Request"), Column::text("Limit"), Column::AGE],
    resource_quota,
);

fn node(v: &View<'_>) -> Vec<Value> {
    // If there are several conditions of one type, the last one wins.
    let conditions = v.list(&["status", "conditions"]).iter().rev();
    let ready = conditions.into_iter().find(|c| c.str_at(&["type"]) == Some("Ready"));
    let mut status = match ready {
        None => "Unknown".to_owned(),
        Some(ready) if ready.str_at(&["status"]) == Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if v.bool(&["spec", "unschedulable"]) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| v.full_text_or(&["status", "nodeInfo", field], "<unknown>");
    let mut kernel = info("kernelVersion").to_owned();
    let architecture = v.text(&["status", "nodeInfo", "architecture"]);
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    let address = |kind: &str| {
        let addresses = v.list(&["status", "addresses"]);
        let found = addresses.iter().find(|a| a.str_at(&["type"]) == Some(kind));
        found.and_then(|a| a.str_at(&["address"])).unwrap_or(if found.is_some() { "" } else { "<none>" })
    };
    cells![
        v.name(),
        status,
        node_roles(v),
        v.age(),
        v.text(&["status", "nodeInfo", "kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel,
        info("containerRuntimeVersion"),
    ]
}

/// Roles of a node, taken from its labels.
fn node_roles(v: &View<'_>) -> String {
    let labels = v.object.at(&["metadata", "labels"]).and_then(Value::as_map);
    let role = |(key, value): (&'_ value::Str, &'_ Value)| {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str()?,
            None => return None,
        };
        (!role.is_empty()).then(|| role.to_owned())
    };
    let roles: BTreeSet<String> = labels.into_iter().flat_map(Map::iter).filter_map(role).collect();
    if roles.is_empty() { "<none>".to_owned() } else { Vec::from_iter(roles).join(",") }
}

fn persistent_volume(v: &View<'_>) -> Vec<Value> {
    let claim = match v.object.at(&["spec", "claimRef"]) {
        Some(Value::Map(_)) => {
            let part = |field| v.text(&["spec", "claimRef", field]);
            format!("{}/{}", part("namespace"), part("name"))
        }
        _ => String::new(),
    };
    cells![
        v.name(),
        v.quantity(&["spec", "capacity", "storage"], "0"),
        access_modes(v.list(&["spec", "accessModes"])),
        v.text(&["spec", "persistentVolumeReclaimPolicy"]),
        volume_phase(v),
        claim,
        storage_class(v),
        v.text_or(&["spec", "volumeAttributesClassName"], "<unset>"),
        v.text(&["status", "reason"]),
        v.age(),
        v.text_or(&["spec", "volumeMode"], "<unset>"),
    ]
}

fn persistent_volume_claim(v: &View<'_>) -> Vec<Value> {
    let volume = v.text(&["spec", "volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (
            v.quantity(&["status", "capacity", "storage"], "0"),
            access_modes(v.list(&["status", "accessModes"])),
        )
    };
    cells![
        v.name(),
        volume_phase(v),
        volume,
        capacity,
        modes,
        storage_class(v),
        v.text_or(&["spec", "volumeAttributesClassName"], "<unset>"),
        v.age(),
        v.text_or(&["spec", "volumeMode"], "<unset>"),
    ]
}

fn volume_phase<'a>(v: &View<'a>) -> &'a str {
    if v.is_deleting() { "Terminating" } else { v.text(&["status", "phase"]) }
}

fn storage_class<'a>(v: &View<'a>) -> &'a str {
    api::meta::storage_class(v.object)
}

fn access_modes(modes: &[Value]) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |long: &str| texts(modes).any(|mode| mode == long);
    SHORT.iter().filter(|(long, _)| has(long)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn resource_quota(v: &View<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = v.object.at(&["status", "hard"]).and_then(Value::as_map);
    for (resource, hard) in hard.into_iter().flat_map(Map::iter) {
        let used = v.quantity(&["status", "used", resource], "0");
        let text = format!("{resource}: {used}/{}", quantity(hard));
        if resource.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    cells![v.name(), requests.join(", "), limits.join(", "), v.age()]
}
