//! Whether a pod refers to secrets or config maps.

use value::Value;

/// Volume sources with a reference to a secret, and its field.
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

/// Checks image pull secrets, environment variables and volumes.
pub(crate) fn refers_to_secrets(pod: &Value) -> bool {
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
        || pod.list_at(&["spec", "volumes"]).iter().any(volume_refers_to_secret)
}

fn volume_refers_to_secret(volume: &Value) -> bool {
    let projects =
        volume.list_at(&["projected", "sources"]).iter().any(|source| source.get("secret").is_some());
    projects || BY_REFERENCE.iter().any(|(source, field)| volume.at(&[source, field]).is_some())
}

pub(crate) fn refers_to_config_maps(pod: &Value) -> bool {
    let in_container = |container: &Value| {
        container.list_at(&["envFrom"]).iter().any(|source| source.get("configMapRef").is_some())
            || container.list_at(&["env"]).iter().any(|v| v.at(&["valueFrom", "configMapKeyRef"]).is_some())
    };
    let volume_refers_to_secret = |volume: &Value| {
        volume.get("configMap").is_some()
            || volume
                .list_at(&["projected", "sources"])
                .iter()
                .any(|source| source.get("configMap").is_some())
    };
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .any(|field| pod.list_at(&["spec", field]).iter().any(in_container))
        || pod.list_at(&["spec", "volumes"]).iter().any(volume_refers_to_secret)
}
