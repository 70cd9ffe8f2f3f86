//! NodeRestriction for pods: a kubelet creates and deletes mirror pods, and updates the status of pods bound
//! to its node.

use api::{Status, field, meta};
use value::Value;

use super::super::pod_secrets;
use super::{NodeRequest, is_empty};
use crate::Operation;

const EXTENDED: &[&str] = &["status", "extendedResourceClaimStatus"];

impl NodeRequest<'_, '_> {
    pub(super) fn check_pod(&self) -> Result<(), Status> {
        let node_text = self.node_text();
        match (self.attributes.operation, self.object) {
            (Operation::Create, Some(pod)) => self.check_mirror(pod),
            (Operation::Delete, _) => {
                if self.is_on_node(&*self.pod(&self.attributes.name)?) {
                    return Ok(());
                }
                Err(self.refuse(format!("{node_text} can only delete pods with spec.nodeName set to itself")))
            }
            (operation, _) => Err(self.refuse(format!(
                "unexpected operation {}, {node_text} can only create and delete mirror pods",
                field::quote(operation.as_str())
            ))),
        }
    }

    /// A kubelet may create only mirror pods.
    fn check_mirror(&self, pod: &Value) -> Result<(), Status> {
        let node_text = self.node_text();
        if !meta::is_mirror_pod(pod) {
            let annotation = field::quote(meta::MIRROR_POD);
            let why =
                format!("pod does not have {annotation} annotation, {node_text} can only create mirror pods");
            return Err(self.refuse(why));
        }
        if !self.is_on_node(pod) {
            return Err(
                self.refuse(format!("{node_text} can only create pods with spec.nodeName set to itself"))
            );
        }
        let owners: Vec<meta::OwnerReference> = meta::owner_references(pod).collect();
        let to_itself = format!("{node_text} can only create pods with an owner reference set to itself");
        let owner = match owners.as_slice() {
            [] => return Err(self.refuse(to_itself)),
            [owner] => owner,
            _ => {
                let why =
                    format!("{node_text} can only create pods with a single owner reference set to itself");
                return Err(self.refuse(why));
            }
        };
        if owner.api_version != "v1" || owner.kind != "Node" || owner.name != self.name {
            return Err(self.refuse(to_itself));
        }
        if !owner.controller {
            let why =
                format!("{node_text} can only create pods with a controller owner reference set to itself");
            return Err(self.refuse(why));
        }
        if owner.block_owner_deletion {
            return Err(
                self.refuse(format!("{node_text} must not set blockOwnerDeletion on an owner reference"))
            );
        }
        let node = self.node(self.name)?;
        let uid = meta::uid(&node);
        if owner.uid != uid {
            let why = format!("node {} UID mismatch: expected {} got {uid}", self.name, owner.uid);
            return Err(self.refuse(why));
        }
        match referenced(pod) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => {
                Err(self.refuse(format!("{node_text} can not create pods that reference {what}")))
            }
            Err(why) => Err(self.refuse(format!("error checking mirror pod for API references: {why}"))),
        }
    }

    pub(super) fn check_pod_status(&self) -> Result<(), Status> {
        let (Operation::Update, Some(new)) = (self.attributes.operation, self.object) else {
            return Err(self.status_of_reply());
        };
        let (old, node_text) = (self.old()?, self.node_text());
        if !self.is_on_node(old) {
            let why =
                format!("{node_text} can only update pod status for pods with spec.nodeName set to itself");
            return Err(self.refuse(why));
        }
        let unset = |value: Option<&Value>, path: &[&str]| match value {
            // A struct in Go: an empty object counts as set.
            Some(Value::Map(_)) if path == EXTENDED => false,
            value => is_empty(value),
        };
        let same = |path: &[&str]| {
            old.at(path) == new.at(path) || unset(old.at(path), path) && unset(new.at(path), path)
        };
        for (path, what) in [
            (&["metadata", "labels"][..], "update labels through pod status"),
            (&["status", "resourceClaimStatuses"], "update resource claim statues"),
            (EXTENDED, "update extended resource claim status"),
            (
                &["status", "nodeAllocatableResourceClaimStatuses"],
                "update node allocatable resource claim statuses",
            ),
        ] {
            if !same(path) {
                return Err(self.refuse(format!("{node_text} cannot {what}")));
            }
        }
        Ok(())
    }

    pub(super) fn check_eviction(&self) -> Result<(), Status> {
        if self.attributes.operation != Operation::Create {
            let operation = self.attributes.operation.as_str();
            return Err(self.refuse(format!("unexpected operation {operation}")));
        }
        let name = match (self.attributes.name.as_str(), self.object.map(meta::name)) {
            ("", None | Some("")) => {
                return Err(self.refuse("could not determine pod from request data"));
            }
            ("", Some(name)) | (name, _) => name,
        };
        if self.is_on_node(&*self.pod(name)?) {
            return Ok(());
        }
        let why = format!("node {} can only evict pods with spec.nodeName set to itself", self.name);
        Err(self.refuse(why))
    }
}

/// The first reference of a pod to another API object, as the error message names it.
fn referenced(pod: &Value) -> Result<Option<&'static str>, String> {
    const HARMLESS: &[&str] = &[
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    ];
    const REFERRING: &[(&str, &str)] = &[
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: &[(&str, &str)] = &[
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    if pod.str_at(&["spec", "serviceAccountName"]).is_some_and(|name| !name.is_empty()) {
        return Ok(Some("serviceaccounts"));
    }
    if pod_secrets::refers_to_secrets(pod) {
        return Ok(Some("secrets"));
    }
    if pod_secrets::refers_to_config_maps(pod) {
        return Ok(Some("configmaps"));
    }
    if !pod.list_at(&["spec", "resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    let find = |holder: &Value, table: &[(&str, &'static str)]| {
        table.iter().find(|(field, _)| holder.get(field).is_some()).map(|(_, what)| *what)
    };
    for volume in pod.list_at(&["spec", "volumes"]) {
        let name = field::quote(volume.str_at(&["name"]).unwrap_or_default());
        if HARMLESS.iter().any(|field| volume.get(field).is_some()) {
            continue;
        }
        if let Some(what) = find(volume, REFERRING) {
            return Ok(Some(what));
        }
        if volume.get("projected").is_none() {
            return Err(format!("unknown volume type for volume  {name}"));
        }
        for source in volume.list_at(&["projected", "sources"]) {
            if let Some(what) = find(source, PROJECTED) {
                return Ok(Some(what));
            }
            if source.get("downwardAPI").is_none() {
                return Err(format!("unknown source for projected volume {name}"));
            }
        }
    }
    Ok(None)
}
