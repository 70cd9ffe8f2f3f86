//! The references of pods and volumes to other objects.

use api::meta;
use api::validation::repeated::first_by;
use value::{Str, Value, format_smolstr};

use crate::node::graph::NodeObject;

/// Calls `add` with every object that a pod refers to in its namespace. A mirror pod counts as referring to
/// nothing: kubelets create them, and must not gain access that way.
pub(super) fn of_pod(pod: &Value, add: &mut impl FnMut(NodeObject, Str)) {
    if meta::is_mirror_pod(pod) {
        return;
    }
    let mut add = |object: NodeObject, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            add(object, name.into());
        }
    };
    add(NodeObject::ServiceAccount, pod.str_at(&["spec", "serviceAccountName"]));
    for secret in pod.list_at(&["spec", "imagePullSecrets"]) {
        add(NodeObject::Secret, secret.str_at(&["name"]));
    }
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod.list_at(&["spec", containers]) {
            for source in container.list_at(&["envFrom"]) {
                add(NodeObject::Secret, source.str_at(&["secretRef", "name"]));
                add(NodeObject::ConfigMap, source.str_at(&["configMapRef", "name"]));
            }
            for variable in container.list_at(&["env"]) {
                add(NodeObject::Secret, variable.str_at(&["valueFrom", "secretKeyRef", "name"]));
                add(NodeObject::ConfigMap, variable.str_at(&["valueFrom", "configMapKeyRef", "name"]));
            }
        }
    }
    for volume in pod.list_at(&["spec", "volumes"]) {
        for path in VOLUME_SECRETS {
            add(NodeObject::Secret, volume.str_at(path));
        }
        add(NodeObject::ConfigMap, volume.str_at(&["configMap", "name"]));
        for source in volume.list_at(&["projected", "sources"]) {
            add(NodeObject::Secret, source.str_at(&["secret", "name"]));
            add(NodeObject::ConfigMap, source.str_at(&["configMap", "name"]));
        }
        add(NodeObject::Claim, volume.str_at(&["persistentVolumeClaim", "claimName"]));
        if volume.at(&["ephemeral"]).is_some_and(|e| !e.is_null()) {
            // The claim of an ephemeral volume is named after the pod and the volume.
            let name = volume.str_at(&["name"]).unwrap_or_default();
            add(NodeObject::Claim, Some(&format_smolstr!("{}-{name}", meta::name(pod))));
        }
    }
    let statuses = first_by(pod.list_at(&["status", "resourceClaimStatuses"]), "name");
    for claim in pod.list_at(&["spec", "resourceClaims"]) {
        let made = || {
            let name = claim.str_at(&["name"]).unwrap_or_default();
            statuses.get(name)?.str_at(&["resourceClaimName"])
        };
        add(NodeObject::ResourceClaim, claim.str_at(&["resourceClaimName"]).or_else(made));
    }
    add(
        NodeObject::ResourceClaim,
        pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]),
    );
}

/// The paths at which volume sources name a secret of the pod's namespace.
const VOLUME_SECRETS: &[&[&str]] = &[
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["secret", "secretName"],
    &["storageos", "secretRef", "name"],
];

/// Namespace and name of the secrets that a volume's node needs. Without a namespace, a secret is in that of the claim,
/// except for the volume types that require a namespace (Cinder, StorageOS, CSI).
pub(super) fn secrets_of_volume(volume: &Value, claim_namespace: &str) -> Vec<(Str, Str)> {
    let mut secrets = Vec::new();
    let Some(spec) = volume.at(&["spec"]) else { return secrets };
    let mut add = |name: Option<&str>, namespace: Option<&str>, otherwise: &str| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let namespace = namespace.filter(|ns| !ns.is_empty()).unwrap_or(otherwise);
            secrets.push((namespace.into(), name.into()));
        }
    };
    add(
        spec.str_at(&["azureFile", "secretName"]),
        spec.str_at(&["azureFile", "secretNamespace"]),
        claim_namespace,
    );
    for source in ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO"] {
        let field = |field| spec.str_at(&[source, "secretRef", field]);
        add(field("name"), field("namespace"), claim_namespace);
    }
    for source in ["cinder", "storageos"] {
        let field = |field| spec.str_at(&[source, "secretRef", field]);
        add(field("name"), field("namespace"), "");
    }
    // Secrets of the CSI controller are not needed on the node.
    for reference in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
        let field = |field| spec.str_at(&["csi", reference, field]);
        add(field("name"), field("namespace"), "");
    }
    secrets
}
