//! What a pod and a volume refer to.

use api::meta;
use value::{Str, Value, format_smolstr};

use crate::node::graph::Object;

/// The annotation of a pod that mirrors one the node runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Every object of its namespace that a pod on a node needs there, the pod aside. A mirror pod needs nothing: nodes create
/// those, and must not gain access by it.
pub(super) fn of_pod(pod: &Value, add: &mut impl FnMut(Object, Str)) {
    if pod.at(&["metadata", "annotations", MIRROR]).is_some() {
        return;
    }
    let mut add = |object: Object, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            add(object, name.into());
        }
    };
    add(Object::ServiceAccount, pod.str_at(&["spec", "serviceAccountName"]));
    for secret in pod.list_at(&["spec", "imagePullSecrets"]) {
        add(Object::Secret, secret.str_at(&["name"]));
    }
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod.list_at(&["spec", containers]) {
            for source in container.list_at(&["envFrom"]) {
                add(Object::Secret, source.str_at(&["secretRef", "name"]));
                add(Object::ConfigMap, source.str_at(&["configMapRef", "name"]));
            }
            for variable in container.list_at(&["env"]) {
                add(Object::Secret, variable.str_at(&["valueFrom", "secretKeyRef", "name"]));
                add(Object::ConfigMap, variable.str_at(&["valueFrom", "configMapKeyRef", "name"]));
            }
        }
    }
    for volume in pod.list_at(&["spec", "volumes"]) {
        for path in VOLUME_SECRETS {
            add(Object::Secret, volume.str_at(path));
        }
        add(Object::ConfigMap, volume.str_at(&["configMap", "name"]));
        for source in volume.list_at(&["projected", "sources"]) {
            add(Object::Secret, source.str_at(&["secret", "name"]));
            add(Object::ConfigMap, source.str_at(&["configMap", "name"]));
        }
        add(Object::Claim, volume.str_at(&["persistentVolumeClaim", "claimName"]));
        if volume.at(&["ephemeral"]).is_some_and(|e| !e.is_null()) {
            // The claim of an ephemeral volume is named for the pod and the volume.
            let name = volume.str_at(&["name"]).unwrap_or_default();
            add(Object::Claim, Some(&format_smolstr!("{}-{name}", meta::name(pod))));
        }
    }
    for claim in pod.list_at(&["spec", "resourceClaims"]) {
        let made = || {
            let name = claim.str_at(&["name"]);
            let statuses = pod.list_at(&["status", "resourceClaimStatuses"]);
            statuses.iter().find(|s| s.str_at(&["name"]) == name)?.str_at(&["resourceClaimName"])
        };
        add(Object::ResourceClaim, claim.str_at(&["resourceClaimName"]).or_else(made));
    }
    add(Object::ResourceClaim, pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]));
}

/// Where the kinds of volumes name a secret of the pod's namespace.
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

/// The secrets of a volume that its node needs, by namespace and name; without a namespace of its own a secret is the claim's.
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
    // The controller's own secrets are none of the node's business.
    for reference in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
        let field = |field| spec.str_at(&["csi", reference, field]);
        add(field("name"), field("namespace"), "");
    }
    secrets
}
