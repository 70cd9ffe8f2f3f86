//! PodGroupProtection: adds a finalizer to new pod groups that prevents their deletion while in use.

use api::Status;
use api::features::{Feature, Features};
use value::Value;

use super::protection::protect;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct PodGroupProtection {
    pub features: Features,
}

impl Plugin for PodGroupProtection {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if self.features.has(Feature::GenericWorkload)
            && attributes.is_resource("scheduling.k8s.io", "podgroups")
        {
            protect(attributes, object, "scheduling.k8s.io/podgroup-protection");
        }
        Ok(())
    }
}
