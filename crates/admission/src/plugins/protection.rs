//! StorageObjectInUseProtection and PodGroupProtection: new volumes, claims, attribute classes and pod groups get a finalizer that
//! keeps them while somebody uses them.

use api::{Status, meta};
use value::Value;

use crate::{Attributes, Cluster, Notes, Operation, Plugin};

/// Volumes, claims and volume attributes classes.
#[derive(Debug)]
pub struct StorageObjectInUseProtection;

/// Pod groups.
#[derive(Debug)]
pub struct PodGroupProtection;

impl Plugin for StorageObjectInUseProtection {
    fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        _: &dyn Cluster,
        _: &mut Notes,
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
        attributes: &Attributes<'_>,
        object: &mut Value,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if attributes.is_resource("scheduling.k8s.io", "podgroups") {
            protect(attributes, object, "scheduling.k8s.io/podgroup-protection");
        }
        Ok(())
    }
}

fn protect(attributes: &Attributes<'_>, object: &mut Value, finalizer: &'static str) {
    let new = attributes.operation == Operation::Create && attributes.subresource.is_empty();
    if new && !meta::finalizers(object).any(|known| known == finalizer) {
        super::append(object, &["metadata", "finalizers"], finalizer.into());
    }
}
