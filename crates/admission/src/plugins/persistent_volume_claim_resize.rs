//! PersistentVolumeClaimResize: a claim may grow only if it is bound and its storage class allows expansion.

use api::Status;
use api::meta::storage_class;
use api::quantity::Quantity;
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

#[derive(Debug)]
pub struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let update = attributes.operation == Operation::Update;
        if !update || !attributes.is_resource("", "persistentvolumeclaims") {
            return Ok(());
        }
        let (Some(new), Some(old)) = (object, attributes.old_object.stored()) else { return Ok(()) };
        if size(new) <= size(old) {
            return Ok(());
        }
        if old.str_at(&["status", "phase"]) != Some("Bound") {
            return Err(attributes.refuse(object, "Only bound persistent volume claims can be expanded"));
        }
        let expandable = !storage_class(new).is_empty()
            && storage_class(new) == storage_class(old)
            && cluster
                .object("storage.k8s.io", "storageclasses", "", storage_class(new))
                .is_some_and(|class| class.bool_at(&["allowVolumeExpansion"]) == Some(true));
        if !expandable {
            return Err(attributes.refuse(
                object,
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
            ));
        }
        Ok(())
    }
}

fn size(claim: &Value) -> Quantity {
    claim
        .str_at(&["spec", "resources", "requests", "storage"])
        .and_then(|text| Quantity::parse(text).ok())
        .unwrap_or(Quantity::ZERO)
}
