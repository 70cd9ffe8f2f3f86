//! StorageObjectInUseProtection: adds a finalizer to new volumes, claims and volume attributes classes that prevents their deletion while
//! in use.

use api::Status;
use value::Value;

use super::protection::protect;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct StorageObjectInUseProtection;

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
