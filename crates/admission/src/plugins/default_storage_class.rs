//! DefaultStorageClass: sets the default storage class on claims that name none.

use api::{Status, meta};
use value::Value;

use super::default_class::ClassReference;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct DefaultStorageClass;

const STORAGE_CLASS: ClassReference = ClassReference {
    objects: ("", "persistentvolumeclaims"),
    field: "storageClassName",
    annotation: meta::STORAGE_CLASS,
    classes: ("storage.k8s.io", "storageclasses"),
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
};

impl Plugin for DefaultStorageClass {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        STORAGE_CLASS.set_default(attributes, object, cluster);
        Ok(())
    }
}
