//! StorageObjectInUseProtection and PodGroupProtection: add a finalizer to new volumes, claims, volume
//! attributes classes and pod groups that prevents their deletion while in use.

use api::{Status, meta};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

/// Protects volumes, claims and volume attributes classes that are in use.
#[derive(Debug)]
pub struct StorageObjectInUseProtection;

/// Protects pod groups that are in use.
#[derive(Debug)]
pub struct PodGroupProtection;

impl Plugin for StorageObjectInUseProtection {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let resource = (attributes.resource.group.as_str(), attributes.resource.resource.as_str());
        let finalizer = match resource {
            ("", "persistentvolumes") => "kubernetes.io/pv-protection",
            ("", "persistentvolumeclaims") => "kubernetes.io/pvc-protection",
            ("storage.k8s.io", "volumeattributesclasses") => "kubernetes.io/vac-protection",
            _ => return Ok(()),
        };
        protect(attributes, object, finalizer);
        Ok(())
    }
}

impl Plugin for PodGroupProtection {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if attributes.is_resource("scheduling.k8s.io", "podgroups") {
            protect(attributes, object, "scheduling.k8s.io/podgroup-protection");
        }
        Ok(())
    }
}

fn protect(attributes: &AdmissionAttributes<'_>, object: &mut Value, finalizer: &'static str) {
    let new = attributes.operation == Operation::Create && attributes.subresource.is_empty();
    if new && !meta::finalizers(object).any(|known| known == finalizer) {
        super::append(object, &["metadata", "finalizers"], finalizer.into());
    }
}
