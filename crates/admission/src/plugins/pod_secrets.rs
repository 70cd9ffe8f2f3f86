//! Whether a pod refers to secrets or config maps.

use value::Value;

/// Volume sources that take a secret by a reference of their own.
const BY_REFERENCE: &[(&str, &str)] = &[
    ("azureFile", "secretName"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("secret", "secretName"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
];

/// Whether the pod refers to any secret: to pull images, in the environment of a container, or in a volume.
pub(crate) fn any(pod: &Value) -> bool {
    if !pod.list_at(&["spec", "imagePullSecrets"]).is_empty() {
        return true;
    }
    let in_container = |container: &Value| {
        container.list_at(&["envFrom"]).iter().any(|source| source.get("secretRef").is_some())
            || container.list_at(&["env"]).iter().any(|v| v.at(&["valueFrom", "secretKeyRef"]).is_some())
    };
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .any(|field| pod.list_at(&["spec", field]).iter().any(in_container))
        || pod.list_at(&["spec", "volumes"]).iter().any(in_volume)
}

fn in_volume(volume: &Value) -> bool {
    let projects =
        volume.list_at(&["projected", "sources"]).iter().any(|source| source.get("secret").is_some());
    projects || BY_REFERENCE.iter().any(|(source, field)| volume.at(&[source, field]).is_some())
}

/// Whether the pod refers to any config map.
pub(crate) fn any_config_map(pod: &Value) -> bool {
    let in_container = |container: &Value| {
        container.list_at(&["envFrom"]).iter().any(|source| source.get("configMapRef").is_some())
            || container.list_at(&["env"]).iter().any(|v| v.at(&["valueFrom", "configMapKeyRef"]).is_some())
    };
    let in_volume = |volume: &Value| {
        volume.get("configMap").is_some()
            || volume
                .list_at(&["projected", "sources"])
                .iter()
                .any(|source| source.get("configMap").is_some())
    };
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .any(|field| pod.list_at(&["spec", field]).iter().any(in_container))
        || pod.list_at(&["spec", "volumes"]).iter().any(in_volume)
}
