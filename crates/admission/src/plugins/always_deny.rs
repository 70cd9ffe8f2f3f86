//! AlwaysDeny: rejects every write. Off by default.

use api::Status;
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        Err(attributes.refuse(Some(object), "admission control is denying all modifications"))
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        Err(attributes.refuse(object, "admission control is denying all modifications"))
    }
}
